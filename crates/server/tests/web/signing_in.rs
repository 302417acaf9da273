//! Sign-in, sessions across servers, expiry, security headers and cross-site forms.

use jiff::Timestamp;
use refit_authority::{Authority, RotationMode};
use refit_backend::{Backend, KeyRange};
use refit_identity::Phase;
use refit_testbed::eventually;
use serde_json::Value;

use crate::browser::{Browser, invite};
use crate::world::{SOON, World, key};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[tokio::test(flavor = "multi_thread")]
async fn an_address_signs_in_once_on_any_server_and_the_session_counts_on_all() {
    let world = World::start(2).await;
    let (one, two) = (&world.servers[0], &world.servers[1]);
    let invited = invite(&world.store, one, "alice", "viewer", None).await.unwrap();
    let path = format!("/web/login/{}", invited.code);
    let mut browser = Browser::open(two).await;
    for _ in 0..3 {
        let shown = browser.get(&path).await;
        assert_eq!((shown.status, shown.header("set-cookie")), (200, None), "a preview uses nothing up");
        assert!(
            shown.body.contains("id=\"sign-in\"") && !shown.body.contains(&invited.code),
            "{}",
            shown.body
        );
        assert_eq!(shown.header("referrer-policy"), Some("same-origin"));
    }
    let answer = browser.post(&path, &[]).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/web/")));
    let cookie = browser.take_cookie(&answer);
    assert!(cookie.starts_with("__Host-refit="), "{cookie}");
    for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
        assert!(cookie.split("; ").any(|known| known == attribute), "{attribute}: {cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    let age: u64 = cookie.split("Max-Age=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!(age <= 3600, "no longer than the identity: {age}");

    let again = Browser::open(one).await.post(&path, &[]).await;
    assert_eq!((again.status, again.header("set-cookie")), (403, None));
    assert!(again.body.contains("was used already") && again.body.contains("refitctl web login"));

    let page = browser.page("/web/").await;
    assert!(page.contains("<b>alice</b>") && page.contains("(viewer)"), "{page}");
    let mut elsewhere = Browser { cookie: browser.cookie.clone(), ..Browser::open(one).await };
    let page = elsewhere.page("/web/").await;
    assert!(page.contains("<b>alice</b>"));

    let token = browser.token().await;
    let out = browser.post("/web/logout", &[("token", &token)]).await;
    assert_eq!(out.status, 303);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(elsewhere.get("/web/").await.status, 401, "signed out everywhere");
    let events = world.events().await;
    let told: Vec<(&str, &str)> = events.iter().map(|e| (e.r#type.as_str(), e.actor.as_str())).collect();
    assert_eq!(told, [("session.began", "alice"), ("session.ended", "alice")]);
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_without_a_good_session_and_every_answer_is_strict() {
    let world = World::start(1).await;
    let server = &world.servers[0];
    let mut browser = Browser::open(server).await;
    let forged = "0123456789abcdef".repeat(4);
    for cookie in [None, Some(forged.as_str()), Some(""), Some("x"), Some("\u{e9}")] {
        browser.cookie = cookie.map(|value| format!("__Host-refit={value}"));
        for path in ["/web/", "/web/rollout", "/web/rollout/a", "/web/audit", "/web/live", "/web/version"] {
            let answer = browser.get(path).await;
            assert_eq!(answer.status, 401, "{path} with {cookie:?}");
            assert!(answer.body.contains("refitctl web login"), "{}", answer.body);
        }
        let acted = browser.post("/web/actions/pause", &[("token", "x")]).await;
        assert_eq!(acted.status, 401, "{cookie:?}");
    }
    browser.cookie = None;
    for path in ["/web/", "/web/login/x", "/web/nothing", "/web/assets/refit.css", "/web"] {
        let answer = browser.get(path).await;
        assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(
            answer.header("strict-transport-security").is_none(),
            "a private authority must not lock anyone out"
        );
    }
    assert_eq!(browser.get("/web/").await.header("cache-control"), Some("no-store"));
    assert_eq!(browser.get("/webapi/find").await.status, 200, "a neighbour is not taken for a page");
    let head = browser.ask("HEAD", "/web/", &[], "").await;
    assert_eq!((head.status, head.body.as_str()), (401, ""));
    let long = browser.post("/web/logout", &[("token", &"x".repeat(20_000))]).await;
    assert_eq!(long.status, 400, "{}", long.body);
    browser = Browser::open(server).await;
    for method in ["PUT", "DELETE", "OPTIONS"] {
        assert_eq!(browser.ask(method, "/web/", &[], "").await.status, 405, "{method}");
    }
    let guess = async |browser: &mut Browser| browser.post("/web/login/guess", &[]).await.status;
    let mut guesses = Vec::new();
    for _ in 0..12 {
        guesses.push(guess(&mut browser).await);
    }
    assert_eq!(guesses[..10], [403; 10]);
    assert_eq!(guesses[10..], [429; 2], "a guesser is slowed down");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_is_refused_and_the_store_holds_no_secret() {
    let world = World::start(1).await;
    let server = &world.servers[0];
    let invited = invite(&world.store, server, "alice", "viewer", Some(600)).await.unwrap();
    let mut browser = Browser::signed_in(&world.store, server, "bob", "viewer").await;
    browser.page("/web/").await;
    let page = world.backend.range(&KeyRange::below(&key("/web/v1")), 100).await.unwrap();
    assert_eq!(page.items.len(), 2, "a code and a session");
    let secret = browser.cookie.clone().unwrap().split_once('=').unwrap().1.to_owned();
    for item in &page.items {
        let stored = format!("{} {}", item.key, String::from_utf8_lossy(&item.value));
        assert!(!stored.contains(&secret) && !stored.contains(&invited.code), "{stored}");
        // As if time had passed.
        let mut record: Value = serde_json::from_slice(&item.value).unwrap();
        record["expires"] = "2020-01-01T00:00:00Z".into();
        world.backend.put(&item.key, record.to_string().into()).await.unwrap();
    }
    assert_eq!(browser.get("/web/").await.status, 401);
    let late = Browser::open(server).await.post(&format!("/web/login/{}", invited.code), &[]).await;
    assert_eq!((late.status, late.header("set-cookie")), (403, None));
    assert!(late.body.contains("2020-01-01"), "{}", late.body);
    for ttl in [1, 86_401] {
        let refused = invite(&world.store, server, "alice", "viewer", Some(ttl)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    }
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_the_trust_in_the_identity_that_it_was_made_with() {
    let world = World::start(1).await;
    let server = &world.servers[0];
    let mut browser = Browser::signed_in(&world.store, server, "alice", "admin").await;
    let mut late = Browser::open(server).await;
    let unused = invite(&world.store, server, "alice", "admin", None).await.unwrap();
    let rotate = async |phase: Phase| {
        let stored = Authority::load(&world.backend).await.unwrap().unwrap();
        let next = stored.authority().advance(phase, RotationMode::Manual, Timestamp::now()).unwrap();
        stored.replace(&world.backend, next, &[]).await.unwrap();
    };
    for phase in [Phase::Init, Phase::UpdateClients, Phase::UpdateServers] {
        rotate(phase).await;
        assert_eq!(browser.get("/web/").await.status, 200, "{phase:?}: the old authority still counts");
    }
    rotate(Phase::Standby).await;
    let browser = tokio::sync::Mutex::new(browser);
    eventually("the session has ended", SOON, || async {
        browser.lock().await.get("/web/").await.status == 401
    })
    .await;
    let answer = late.post(&format!("/web/login/{}", unused.code), &[]).await;
    assert_eq!(answer.status, 403, "{}", answer.body);
    assert!(answer.body.contains("no longer trusted") && answer.header("set-cookie").is_none());
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_from_elsewhere_does_nothing() {
    let world = World::start(1).await;
    world.choose(crate::world::NEW, "regular").await;
    let server = &world.servers[0];
    let mut browser = Browser::signed_in(&world.store, server, "carol", "admin").await;
    let mut other = Browser::signed_in(&world.store, server, "dave", "admin").await;
    let (own, others) = (browser.token().await, other.token().await);
    let host = browser.host.clone();
    for (origin, token) in [
        (format!("https://{host}"), ""),
        (format!("https://{host}"), others.as_str()),
        ("https://evil.example".into(), own.as_str()),
        ("null".into(), own.as_str()),
        (format!("http://{host}"), own.as_str()),
    ] {
        let refused = browser.post_from(&origin, "/web/actions/pause", &[("token", token)]).await;
        assert_eq!(refused.status, 403, "{origin} {token}");
    }
    let unsaid = browser.ask("POST", "/web/actions/pause", &[], &format!("token={own}")).await;
    assert_eq!(unsaid.status, 403, "no origin at all");
    let site = [("Origin", format!("https://{host}")), ("Sec-Fetch-Site", "cross-site".into())];
    let site = site.each_ref().map(|(name, value)| (*name, value.as_str()));
    let crossed = browser.ask("POST", "/web/actions/pause", &site, &format!("token={own}")).await;
    assert_eq!(crossed.status, 403);
    let invited = invite(&world.store, server, "mallory", "admin", None).await.unwrap();
    let path = format!("/web/login/{}", invited.code);
    let foisted = browser.post_from("https://evil.example", &path, &[]).await;
    assert_eq!((foisted.status, foisted.header("set-cookie")), (403, None), "nobody is signed in as another");
    assert!(world.rollout().await.paused_at.is_none());
    let good = browser.post("/web/actions/pause", &[("token", &own)]).await;
    assert_eq!(good.status, 303, "{}", good.body);
    assert!(world.rollout().await.paused_at.is_some());
    world.shut_down().await;
}
