//! Identities and addresses of `refitctl`, and its errors when they do not match the cluster.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use refit_authority::Authority;
use refit_backend::{EtcdAddress, EtcdBackend};
use refit_identity::{Identity, PrivateKey, Role, SigningRequest};

use crate::host::{Host, Ran, empty_store, mode};

fn sign(host: &Host, user: &str, roles: &str) -> PathBuf {
    let file = host.path(&format!("{user}.json"));
    host.ctl(&["auth", "sign", "--user", user, "--roles", roles, "--out", file.to_str().unwrap()]).good();
    file
}

#[test]
fn an_identity_works_from_anywhere_and_only_for_its_roles() {
    let host = Host::new();
    let server = host.serve();
    let viewer = sign(&host, "vera", "viewer");
    assert_eq!(mode(&viewer), 0o600);

    // Another host, which has nothing but the file.
    let elsewhere = Host::new();
    let target = ["--identity", viewer.to_str().unwrap(), "--server", server.address()];
    let ctl = |arguments: &[&str]| elsewhere.refitctl(&[&target[..], arguments].concat());
    let status = ctl(&["status", "--format", "json"]).json();
    assert_eq!(status["caller"]["name"], "vera");
    assert_eq!(status["caller"]["roles"], serde_json::json!(["viewer"]));
    ctl(&["get", "channels"]).good();
    let denied = ctl(&["rm", "channel/x"]).bad(1);
    assert!(denied.contains(r#""vera" with the roles viewer may not delete resource"#), "{denied}");
    let denied = ctl(&["auth", "sign", "--user", "x", "--roles", "admin", "--out", "x.json"]).bad(1);
    assert!(denied.contains("may not sign user"), "{denied}");
    assert!(!elsewhere.path("x.json").exists());

    let mut by_variables = elsewhere.command(&elsewhere.path("refitctl"), &["status", "--format", "json"]);
    by_variables.env("REFIT_SERVER", server.address()).env("REFIT_IDENTITY", &viewer);
    assert_eq!(Ran::of(&mut by_variables).json()["caller"]["name"], "vera");
}

#[test]
fn the_line_that_signing_proposes_works_as_it_is_pasted() {
    let host = Host::new();
    let _server = host.serve();
    let sign = ["auth", "sign", "--user", "eve", "--roles", "viewer,version-editor", "--ttl", "30m"];
    let shown = host.ctl(&[&sign[..], &["--out", "eve's own.json"]].concat()).good();
    assert!(shown.contains("Wrote the identity of eve (viewer, version-editor)"), "{shown}");
    let line = shown.lines().last().unwrap().trim();
    let status = Ran::of(&mut host.command(Path::new("sh"), &["-c", line])).good();
    assert!(status.contains("eve (version-editor, viewer)"), "{status}");

    let taken = host.ctl(&[&sign[..], &["--out", "eve's own.json"]].concat()).bad(1);
    assert!(taken.contains("exists already") && taken.contains("--overwrite"), "{taken}");
    let again = [&sign[..], &["--out", "eve's own.json", "--overwrite", "--format", "json"]].concat();
    let answer = host.ctl(&again).json();
    assert_eq!((&answer["user"], &answer["file"]), (&"eve".into(), &"eve's own.json".into()));
    let expires: Timestamp = answer["expires"].as_str().unwrap().parse().unwrap();
    let left = expires.duration_since(Timestamp::now()).as_secs();
    assert!((25 * 60..=30 * 60).contains(&left), "{left}");
    assert!(!answer.to_string().contains("PRIVATE KEY"), "{answer}");
}

#[test]
fn what_cannot_be_signed_is_explained() {
    let host = Host::new();
    let _server = host.serve();
    let sign = |user: &str, roles: &str, ttl: &str| {
        host.ctl(&["auth", "sign", "--user", user, "--roles", roles, "--ttl", ttl, "--out", "x.json"])
    };
    for (ran, code, word) in [
        (sign("Alice!", "viewer", "8h"), 2, "is not a user name"),
        (sign("alice", "root", "8h"), 2, "expected admin"),
        (sign("alice", "viewer", "soon"), 2, "30m, 8h or 7d"),
        (sign("alice", "viewer", "91d"), 2, "90 days"),
        (sign("alice", "viewer", "1s"), 2, "1 minute"),
    ] {
        let error = ran.bad(code);
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    assert!(!host.path("x.json").exists());
}

#[test]
fn identity_files_that_cannot_be_used_are_explained() {
    let host = Host::new();
    let server = host.serve();
    let good = std::fs::read_to_string(host.path("data/admin/identity.json")).unwrap();
    let with = |file: &Path| {
        let target = ["--identity", file.to_str().unwrap(), "--server", server.address(), "status"];
        host.refitctl(&target).bad(1)
    };
    let file = host.write("identity.json", &good);
    let exposed = with(&file);
    assert!(exposed.contains("can be read by others") && exposed.contains("chmod 600"), "{exposed}");

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    for garbage in ["", "{}", "not json", &good[..good.len() / 2], &good.replace("BEGIN", "BEGUN")] {
        host.write("identity.json", garbage);
        let error = with(&file);
        assert!(
            error.contains("identity.json cannot be used") || error.contains("cannot be read"),
            "{error}"
        );
        assert!(!error.contains("PRIVATE KEY") && error.len() < 500, "{error}");
    }
    let missing = with(&host.path("missing.json"));
    assert!(missing.contains("missing.json cannot be read"), "{missing}");
}

#[test]
fn an_unreachable_server_is_named_with_advice() {
    let host = Host::new();
    let nobody = host.ctl(&["status"]).bad(1);
    for word in ["no control plane on this host", "refit server", "--data-dir", "--server"] {
        assert!(nobody.contains(word), "{word:?} is not in {nobody}");
    }
    let server = host.serve();
    let unidentified = host.refitctl(&["--server", server.address(), "--data-dir", "empty", "status"]).bad(1);
    assert!(unidentified.contains("--identity"), "{unidentified}");

    let closed = {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        port.local_addr().unwrap().to_string()
    };
    let wrong = host.ctl(&["--server", &closed, "status"]).bad(1);
    for word in [closed.as_str(), "cannot be reached", "refused", "is `refit server` running there?"] {
        assert!(wrong.contains(word), "{word:?} is not in {wrong}");
    }
    let nonsense = host.ctl(&["--server", "a b:c", "status"]).bad(2);
    assert!(nonsense.contains("--server") && nonsense.contains("HOST:PORT"), "{nonsense}");

    let other = Host::new();
    let elsewhere = other.serve_with(&["--cluster-name", "elsewhere"], &[]);
    let error = host.ctl(&["--server", elsewhere.address(), "status"]).bad(1);
    assert!(error.contains("elsewhere") && error.contains("not signed by the authority"), "{error}");
}

#[tokio::test]
async fn an_expired_identity_is_refused_with_its_time_and_advice() {
    let host = Host::new();
    let store = empty_store("over").await;
    let server = host.serve_with(&["--backend", &store], &[]);
    let backend = EtcdBackend::connect(&EtcdAddress::parse(&store).unwrap()).await.unwrap();
    let now = Timestamp::now();
    let authority = Authority::load_or_create(&backend, "unused".parse().unwrap(), now).await.unwrap();
    let key = PrivateKey::generate().unwrap();
    let request = SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap();
    let hour = Duration::from_secs(3600);
    let (name, roles) = ("late".parse().unwrap(), Role::Admin.into());
    let certificate = authority.issue_user(&request, &name, &roles, hour, now - 2 * hour).unwrap();
    let identity = Identity::new("late", key, certificate, authority.certificates().cloned()).unwrap();
    identity.write(&host.path("late.json")).unwrap();

    let late = host.refitctl(&["--identity", "late.json", "--server", server.address(), "status"]).bad(1);
    assert!(late.contains("expired at") && late.contains("sign in again"), "{late}");
    assert!(late.contains(&identity.expires().to_string()), "{late}");
}
