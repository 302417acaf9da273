//! Every page in light and dark mode, on a phone, without scripts and under an accessibility checker. Also writes the
//! screenshots of the documentation.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::chromium::{Chromium, DESK, PHONE, Tab};
use crate::stage::Stage;

/// The hash and the file name, with the version, of the axe-core that `make test-deps` fetches.
const AXE_CORE_PIN: &str = include_str!("axe-core.sha256");

/// All of levels A and AA, and what is good practice besides.
const RULES: &str = "['wcag2a','wcag2aa','wcag21a','wcag21aa','wcag22aa','best-practice']";

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_fit_to_be_seen() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut tab = chromium.tab_of(&stage.invitation_for("alice", "admin")).await;

    stage.choose("15.1.1");
    stage.fleet.let_succeed("canary", 3);
    stage.fleet.let_succeed("staging", 6);
    stage.until("web", "in_flight", 6).await;
    stage.fleet.let_succeed("web", 8);
    stage.until("web", "upgraded", 8).await;
    stage.fleet.let_fail("web", 1);
    stage.until("web", "failed", 1).await;
    stage.until("web", "in_flight", 6).await;
    pictures(&tab, "rollout-moving", "/web/rollout", Extent::Window).await;
    pictures(&tab, "fleet", "/web/?span=7d&state=failed", Extent::Page).await;
    tab.resize(PHONE).await;
    picture(&tab, "rollout-phone", "/web/rollout", "light", Extent::Window).await;
    tab.resize(DESK).await;
    tab.assert_calm().await;

    stage.fleet.let_succeed("web", 2);
    stage.until("web", "upgraded", 10).await;
    stage.fleet.let_fail("web", 2);
    stage.until("web", "state", "halted").await;
    pictures(&tab, "rollout-halted", "/web/rollout", Extent::Page).await;
    tab.open("/web/rollout/web?outcome=failed").await;
    let failed = tab.js("document.querySelector('#host-table tbody a').getAttribute('href')").await;
    let failed = failed.as_str().unwrap();
    pictures(&tab, "host", failed, Extent::Page).await;
    pictures(&tab, "audit", "/web/audit", Extent::Window).await;
    tab.assert_calm().await;

    let pages = [
        ("/web/", "38 hosts"),
        ("/web/?span=7d&state=failed", "Versions over time"),
        ("/web/?q=no-such-host", "No host matches"),
        ("/web/?labels=labels.group+%3D", "Hosts"),
        ("/web/rollout", "halted"),
        ("/web/rollout/web", "limit: at most 6 in flight"),
        ("/web/rollout/web?outcome=failed", "502 Bad Gateway"),
        (failed, "Last failure"),
        ("/web/audit", "Message"),
        ("/web/version", "Schedule"),
        ("/web/version?version=15.2.0&schedule=regular", "What would happen"),
        ("/web/version?version=nonsense", "Schedule"),
        ("/web/actions/run?group=databases", "in your name"),
    ];
    for (path, told) in pages {
        inspect(&mut tab, path, told).await;
        tab.assert_calm().await;
    }
    inspect(&mut tab, "/web/no-such-page", "There is no such page").await;
    tab.assert_refused(404).await;
    let mut stranger = chromium.tab().await;
    inspect(&mut stranger, "/web/", "refitctl web login").await;
    stranger.assert_refused(401).await;
    inspect(&mut stranger, &stage.invitation(), "This address signs you in once").await;
    stranger.assert_calm().await;
}

/// Writes a full-page screenshot to `target/screenshots/pages`, for review.
async fn keep(tab: &Tab, path: &str, how: &str) {
    let path = path.rsplit_once("/web/").map_or(path, |(_, path)| path);
    // Codes and UUIDs are other ones each time.
    let name: Vec<&str> = path.split(|letter: char| !letter.is_ascii_alphanumeric()).take(3).collect();
    let name = match name[0] {
        "login" | "hosts" => name[0].to_owned(),
        "" => "fleet".to_owned() + &name.join("-"),
        _ => name.join("-"),
    };
    let whose = if tab.has("#user").await { "" } else { "strangers-" };
    let folder = screenshots().join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{whose}{name}-{how}.png")), tab.whole().await).unwrap();
}

/// A page is good in light and dark, on a phone, and without scripts.
async fn inspect(tab: &mut Tab, path: &str, told: &str) {
    tab.set_scripts(false).await;
    tab.open(path).await;
    let text = tab.text("main").await;
    assert!(text.contains(told), "{path} without scripts: no {told:?} in {text}");
    tab.set_scripts(true).await;
    tab.open(path).await;
    let text = tab.text("main").await;
    assert!(text.contains(told), "{path}: no {told:?} in {text}");
    let without_utc = "[...document.querySelectorAll('time, [data-time]')].filter((time) => \
         !(time.title || time.parentNode.querySelector(':scope > title')?.textContent)?.endsWith(' UTC')).length";
    assert_eq!(tab.js(without_utc).await, 0, "{path}: times do not tell their UTC");
    for (size, scheme) in [(DESK, "light"), (DESK, "dark"), (PHONE, "light")] {
        tab.resize(size).await;
        tab.paint(scheme).await;
        assert_accessible(tab, &format!("{path} in {scheme} at {} px", size.0)).await;
        let wide = tab.js("[document.scrollingElement.scrollWidth, innerWidth]").await;
        assert!(wide[0].as_i64() <= wide[1].as_i64(), "{path} scrolls sideways: {wide}");
        keep(tab, path, if size == PHONE { "phone" } else { scheme }).await;
    }
    tab.resize(DESK).await;
    tab.paint("light").await;
}

async fn assert_accessible(tab: &Tab, what: &str) {
    if tab.js("typeof axe").await == "undefined" {
        tab.js(&format!("{};0", axe_core())).await;
    }
    let run = format!(
        "axe.run(document, {{ runOnly: {{ type: 'tag', values: {RULES} }} }}).then((found) => [found.passes.length, \
           found.violations.flatMap((rule) => rule.nodes.map((node) => \
             `${{rule.id}}: ${{rule.help}}: ${{node.html}}: ${{node.failureSummary}}`))])"
    );
    let found = tab.js(&run).await;
    assert!(found[0].as_u64() > Some(10), "{what}: hardly anything was checked");
    let violations: Vec<&str> = found[1].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(violations.is_empty(), "{what}:\n{}", violations.join("\n"));
}

fn axe_core() -> String {
    let (_, name) = AXE_CORE_PIN.trim().split_once("  ").expect("a line as sha256sum writes it");
    let path = refit_testbed::cache_directory().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("cannot read {}: {error}; `make test-deps` fetches it", path.display())
    })
}

/// How much of a page is in a picture.
#[derive(Clone, Copy)]
enum Extent {
    Window,
    Page,
}

async fn pictures(tab: &Tab, name: &str, path: &str, extent: Extent) {
    for scheme in ["light", "dark"] {
        picture(tab, &format!("{name}-{scheme}"), path, scheme, extent).await;
    }
}

async fn picture(tab: &Tab, name: &str, path: &str, scheme: &str, extent: Extent) {
    tab.paint(scheme).await;
    tab.open(path).await;
    tab.until_live().await;
    let png = match extent {
        Extent::Window => tab.screenshot().await,
        Extent::Page => tab.whole().await,
    };
    let png = crate::png::packed(&png);
    assert!(png.len() < 250 * 1024, "{name}: {} bytes", png.len());
    for folder in folders() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), &png).unwrap();
    }
    tab.paint("light").await;
}

fn screenshots() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("screenshots")
}

/// Where pictures go.
fn folders() -> Vec<PathBuf> {
    let target = screenshots();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screenshots");
    let is_update = std::env::var("REFIT_SCREENSHOTS").is_ok_and(|wish| wish == "update");
    if is_update { vec![target, docs] } else { vec![target] }
}
