//! Sign-in in a browser, and what a viewer without permissions sees.

use crate::chromium::Chromium;
use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn an_address_signs_in_once() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut tab = chromium.tab().await;
    tab.open("/web/").await;
    assert_eq!(tab.text("h1").await, "Sign in");
    assert_eq!(tab.text("#how-to-sign-in").await, "refitctl web login");
    tab.assert_refused(401).await;
    let invitation = stage.invitation();
    tab.open(&invitation).await;
    assert!(tab.text("h1").await.starts_with("Sign in to "));
    tab.assert_calm().await;
    tab.click("#sign-in").await;
    tab.until_at("/web/").await;
    assert_eq!(tab.text("h1").await, "Fleet");
    assert_eq!(tab.text("#user b").await, "admin");
    assert_eq!(tab.js("document.cookie").await, "", "no script sees the session");
    tab.assert_calm().await;
    let mut other = chromium.tab().await;
    other.open(&invitation).await;
    other.click("#sign-in").await;
    other.until("it is refused", "document.querySelector('#refusal') !== null").await;
    other.assert_refused(403).await;
    other.open("/web/").await;
    assert_eq!(other.text("h1").await, "Sign in");
    tab.click("#sign-out").await;
    tab.until("they are signed out", "document.querySelector('#how-to-sign-in') !== null").await;
    tab.complaints().await;
    tab.open("/web/rollout").await;
    tab.assert_refused(401).await;
}

/// A page that counts its streams, may be deaf to changes, and asks for another stream only when it is told to.
const COUNTS: &str = "window.__streams = 0;
    const Stream = window.EventSource;
    window.EventSource = class extends Stream {
      constructor(...given) {
        super(...given);
        window.__streams += 1;
      }
      addEventListener(name, act) {
        if (name !== 'changed' || !window.__deaf) super.addEventListener(name, act);
      }
    };
    window.setInterval = () => 0;
    const later = window.setTimeout;
    window.setTimeout = (act, pause) => pause === 10000 ? (window.__later = act, 0) : later(act, pause);
    const ask = window.fetch;
    window.__asked = 0;
    window.fetch = (...given) => ask(...given).finally(() => { window.__asked += 1; });";

/// Ends the session as another page of it would.
const LEAVE: &str = "fetch('/web/logout', { method: 'POST', redirect: 'manual', \
    headers: { 'content-type': 'application/x-www-form-urlencoded' }, \
    body: 'token=' + document.querySelector('[name=token]').value }).then((answer) => answer.type)";

#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_session_has_ended_says_so_and_asks_no_more() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let told = "document.querySelector('#connection').innerText === 'signed out'";

    // With the next change; or, if none is heard, when its stream is not taken up again.
    for deaf in [false, true] {
        let mut tab = chromium.tab_of(&stage.invitation()).await;
        tab.begin_pages_with(&format!("window.__deaf = {deaf}; {COUNTS}")).await;
        tab.open("/web/rollout").await;
        tab.until_live().await;
        tab.until("it has shown what it may have missed", "window.__asked > 0").await;
        tab.assert_calm().await;
        assert_eq!(tab.js(LEAVE).await, "opaqueredirect");
        tab.until("the page says that it is no longer live", told).await;
        tab.assert_refused(401).await;
        let is_refused = tab.js("typeof window.__later === 'function'").await;
        assert_eq!(is_refused, deaf, "whether a stream was refused");
        tab.js("window.__later?.(); 1").await;
        assert_eq!(tab.js("window.__streams").await, 1, "another stream is asked for");
        assert!(tab.has("#pause-all").await, "what was read stays");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_no_buttons_and_is_refused_anyway() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut viewer = chromium.tab_of(&stage.invitation_for("mallory", "viewer")).await;
    assert_eq!(viewer.text("#user").await, "mallory (viewer)");
    for page in ["/web/", "/web/rollout", "/web/rollout/web", "/web/audit"] {
        viewer.open(page).await;
        for action in ["[data-action]", "#choose-version", "#confirm", "main form[method=post]"] {
            assert!(!viewer.has(action).await, "{action} on {page}");
        }
        viewer.assert_calm().await;
    }
    for page in ["/web/version", "/web/actions/pause?group=web"] {
        viewer.open(page).await;
        assert_eq!(viewer.text("h1").await, "Not allowed");
        viewer.assert_refused(403).await;
    }
    // With what the page itself would send: the token of their session, from the right origin.
    viewer.open("/web/rollout").await;
    for (path, fields) in [
        ("/web/actions/pause", "group=web"),
        ("/web/actions/run", "group=databases"),
        ("/web/version", "version=15.1.1&schedule=regular&revision=1"),
    ] {
        let sent = format!(
            "fetch({path:?}, {{ method: 'POST', redirect: 'manual', \
               headers: {{ 'content-type': 'application/x-www-form-urlencoded' }}, \
               body: 'token=' + document.querySelector('[name=token]').value + '&{fields}' }}).then((a) => a.status)"
        );
        assert_eq!(viewer.js(&sent).await, 403, "{path}");
    }
    viewer.assert_refused(403).await;
    assert!(stage.group("web")["paused_at"].is_null());
    assert_eq!(stage.group("databases")["state"], "scheduled", "nobody ran it");
    assert_eq!(stage.ctl(&["autoupdate", "status"])["version"], crate::fleet::OLD);
}
