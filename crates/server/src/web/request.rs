//! A dashboard request: session, permissions, form fields, and the checks against cross-site requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, header};
use percent_encoding::percent_decode_str;
use refit_identity::Principal;
use refit_types::Kind;

use super::Web;
use super::response::{Frame, Refusal, Who};
use super::sessions::{Session, form_token};
use crate::access::Caller;
use crate::connection::Peer;

/// The `__Host-` prefix makes browsers require TLS, no domain and the root path.
pub(super) const COOKIE: &str = "__Host-refit";
/// With this header the script requests only the main part of a page.
const FRAGMENT: &str = "x-refit-fragment";
/// Forms here are short.
const MAX_FORM_BYTES: usize = 16 * 1024;
const FORM_WITHIN: Duration = Duration::from_secs(10);
const MAX_QUERY_BYTES: usize = 4 * 1024;

/// A request and its user.
pub(super) struct PageRequest {
    pub(super) peer: Arc<Peer>,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Fields,
    /// The fields of a form.
    pub(super) form: Fields,
    pub(super) fragment: bool,
    pub(super) user: Option<SignedInUser>,
}

/// The user of a valid session.
#[derive(Clone)]
pub(super) struct SignedInUser {
    pub(super) secret: String,
    pub(super) session: Session,
    pub(super) principal: Principal,
}

/// Names and values, as a query or a form has them.
#[derive(Default)]
pub(super) struct Fields(HashMap<String, String>);

impl Fields {
    fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
    }

    /// The value without the space around it; empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.trim())
    }

    /// The value, unless it is empty.
    pub(super) fn some(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }
}

impl PageRequest {
    pub(super) async fn begin(
        web: &Arc<Web>,
        peer: &Arc<Peer>,
        request: Request<Body>,
    ) -> Result<Self, Refusal> {
        let (head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default();
        if query.len() > MAX_QUERY_BYTES {
            return Err(Refusal::Bad("The address is longer than is allowed.".into()));
        }
        let path = percent_decode_str(head.uri.path()).decode_utf8();
        let path = path.map_err(|_| Refusal::Bad("The address is not text.".into()))?.into_owned();
        let mut form = Fields::default();
        if head.method == Method::POST {
            require_same_origin(&head.headers, head.uri.authority().map(|host| host.as_str()))?;
            let bytes = tokio::time::timeout(FORM_WITHIN, axum::body::to_bytes(body, MAX_FORM_BYTES)).await;
            let bytes = bytes.map_err(|_| Refusal::Bad("The form did not come in time.".into()))?;
            let bytes = bytes.map_err(|_| Refusal::Bad("The form is longer than is allowed.".into()))?;
            form = Fields::parse(&bytes);
        } else if head.method != Method::GET && head.method != Method::HEAD {
            return Err(Refusal::Method);
        }
        let user = match cookie(&head.headers).filter(|_| !path.starts_with("/web/assets/")) {
            Some(secret) => {
                let found = web.sessions.find(&secret, &web.authorities.current().trust).await?;
                found.map(|(session, principal)| SignedInUser { secret, session, principal })
            }
            None => None,
        };
        Ok(Self {
            peer: peer.clone(),
            method: head.method,
            path,
            query: Fields::parse(query.as_bytes()),
            form,
            fragment: head.headers.contains_key(FRAGMENT),
            user,
        })
    }

    /// The signed-in user; refused without a session.
    pub(super) fn signed_in(&self) -> Result<&SignedInUser, Refusal> {
        self.user.as_ref().ok_or(Refusal::SignIn)
    }

    /// The same for requests that change something: the form must carry this session's token.
    pub(super) fn posted(&self) -> Result<&SignedInUser, Refusal> {
        let user = self.signed_in()?;
        match self.form.get("token") == form_token(&user.secret) {
            true => Ok(user),
            false => Err(Refusal::Forbidden(
                "This form is not one of your session. Go back, reload the page, and try again.".into(),
            )),
        }
    }

    /// The caller of an API method, if the access table allows it.
    pub(super) fn caller(&self, method: &str, kind: Option<Kind>) -> Result<Caller, Refusal> {
        let user = self.signed_in()?;
        let caller = Caller::authorize(method, &self.peer, || Ok(user.principal.clone()))?;
        if let Some(kind) = kind {
            caller.require(kind)?;
        }
        Ok(caller)
    }

    /// Whether the user may call the method: actions that are not allowed are not shown.
    pub(super) fn may(&self, method: &str, kind: Option<Kind>) -> bool {
        self.caller(method, kind).is_ok()
    }

    /// The frame of a page.
    pub(super) fn frame(&self, web: &Web, page: &'static str, title: impl Into<String>) -> Frame {
        let who = self.user.as_ref().map(|user| Who {
            name: user.session.user.clone(),
            roles: match &user.principal {
                Principal::User { roles, .. } => roles.to_string().replace(',', ", "),
                _ => String::new(),
            },
            token: form_token(&user.secret),
            until: super::format::Moment(user.session.expires),
        });
        let assets = super::assets::version();
        let (title, cluster) = (title.into(), web.cluster().to_string());
        Frame { title, cluster, page, fragment: self.fragment && who.is_some(), who, assets }
    }
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let found = pairs.find(|(name, _)| *name == COOKIE)?.1;
    let is_secret = found.len() == 64 && found.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_secret.then(|| found.to_owned())
}

/// Refuses cross-site forms by the `Origin` header.
fn require_same_origin(headers: &HeaderMap, authority: Option<&str>) -> Result<(), Refusal> {
    let text = |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
    let host = authority.or_else(|| text(header::HOST));
    let origin = text(header::ORIGIN).and_then(|origin| origin.strip_prefix("https://"));
    let told_otherwise = text(header::HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| site != "same-origin" && site != "none");
    match origin.is_some() && origin == host && !told_otherwise {
        true => Ok(()),
        false => Err(Refusal::Forbidden("This form comes from another site, and was not used.".into())),
    }
}
