//! A minimal HTTP client with cookies and forms, which can also break the rules of a browser.

use jiff::Timestamp;
use refit_identity::{Identity, PrivateKey, Roles, SigningRequest};
use refit_proto::auth::v1::auth_service_client::AuthServiceClient;
use refit_proto::auth::v1::{CreateWebLoginRequest, CreateWebLoginResponse};
use refit_server::Server;
use tonic::Status;

use crate::client::{Client, Reply};
use crate::cluster::{HOUR, authority_in, connect};

pub struct Browser {
    pub client: Client,
    pub cookie: Option<String>,
    pub host: String,
}

impl Browser {
    /// One that nobody is signed in with.
    pub async fn open(server: &Server) -> Self {
        let client = Client::connect(server).await;
        Self { client, cookie: None, host: server.local_address().to_string() }
    }

    /// One with which somebody of these roles is signed in.
    pub async fn signed_in(store: &str, server: &Server, name: &str, roles: &str) -> Self {
        let mut browser = Self::open(server).await;
        let code = invite(store, server, name, roles, None).await.unwrap().code;
        let answer = browser.post(&format!("/web/login/{code}"), &[]).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/web/")), "{}", answer.body);
        browser.take_cookie(&answer);
        browser
    }

    /// Keeps the cookie of an answer, as it was given.
    pub fn take_cookie(&mut self, answer: &Reply) -> String {
        let whole = answer.header("set-cookie").unwrap().to_owned();
        self.cookie = Some(whole.split(';').next().unwrap().to_owned());
        whole
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, &[], "").await
    }

    /// A page that is there, as text.
    pub async fn page(&mut self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let origin = format!("https://{}", self.host);
        self.post_from(&origin, path, fields).await
    }

    pub async fn post_from(&mut self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let form = encoded(fields);
        let headers = [("Origin", origin), ("Content-Type", "application/x-www-form-urlencoded")];
        self.ask("POST", path, &headers, &form).await
    }

    pub async fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        if let Some(cookie) = &self.cookie {
            head += &format!("Cookie: theme=dark; {cookie}\r\n");
        }
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        self.client.ask(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await
    }

    /// The token that forms of this session carry.
    pub async fn token(&mut self) -> String {
        let page = self.page("/web/audit").await;
        value_of(&page, "token").to_owned()
    }
}

pub fn encoded(fields: &[(&str, &str)]) -> String {
    let encode = |text: &str| {
        let bytes = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        });
        bytes.collect::<String>()
    };
    fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect::<Vec<_>>().join("&")
}

/// The value of a hidden field.
pub fn value_of<'p>(page: &'p str, name: &str) -> &'p str {
    let (_, after) = page.split_once(&format!("name=\"{name}\" value=\"")).expect(name);
    after.split('"').next().unwrap()
}

/// An identity of some name.
pub async fn identity(store: &str, name: &str, roles: &str, ttl: std::time::Duration) -> Identity {
    let authority = authority_in(store).await;
    let key = PrivateKey::generate().unwrap();
    let request = SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap();
    let roles: Roles = roles.parse().unwrap();
    let user = name.parse().unwrap();
    let certificate = authority.issue_user(&request, &user, &roles, ttl, Timestamp::now()).unwrap();
    Identity::new(name, key, certificate, authority.certificates().cloned()).unwrap()
}

/// What `refitctl web login` asks for.
pub async fn invite(
    store: &str,
    server: &Server,
    name: &str,
    roles: &str,
    ttl: Option<u64>,
) -> Result<CreateWebLoginResponse, Status> {
    let identity = identity(store, name, roles, HOUR).await;
    let mut client = AuthServiceClient::new(connect(server, Some(&identity)).await);
    let ttl = ttl.map(|seconds| prost_types::Duration { seconds: seconds as i64, nanos: 0 });
    Ok(client.create_web_login(CreateWebLoginRequest { ttl }).await?.into_inner())
}
