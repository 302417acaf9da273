//! Actions by mouse and by keyboard in a browser, and their effect on the server.

use crate::chromium::{Chromium, Tab};
use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_set_after_a_look_at_the_plan_and_groups_are_paused_resumed_and_run() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut tab = chromium.tab_of(&stage.invitation()).await;
    tab.open("/web/rollout").await;

    // First the preview, which changes nothing; then what it said.
    tab.click("#choose-version").await;
    tab.until_at("/web/version").await;
    tab.type_into("input[name=version]", "15.1.1").await;
    tab.click("#preview-button").await;
    tab.until("the plan is shown", "document.querySelector('#preview #plan') !== null").await;
    let rows = "document.querySelectorAll('#plan tbody tr').length";
    assert_eq!(tab.js(rows).await, 4);
    let to_do = "document.querySelector('#plan [data-group=web] td:nth-of-type(4)').innerText";
    assert_eq!(tab.js(to_do).await, "24");
    assert_eq!(stage.ctl(&["autoupdate", "status"])["version"], crate::fleet::OLD);
    tab.assert_calm().await;
    tab.click("#confirm").await;
    tab.until_at("/web/rollout").await;
    assert_eq!(
        tab.text("#done").await,
        "Automatic updates configuration has been updated: agents are to run v15.1.1."
    );
    assert_eq!(tab.text("#version").await, "v15.1.1");
    assert_eq!(stage.ctl(&["autoupdate", "status"])["version"], "15.1.1");
    tab.assert_calm().await;

    // Each asks once, and can be left alone.
    tab.click("#pause-web").await;
    tab.until_at("/web/actions/pause").await;
    assert_eq!(tab.text("h1").await, "Pause group web?");
    tab.click("#cancel").await;
    tab.until_at("/web/rollout").await;
    assert!(stage.group("web")["paused_at"].is_null());
    confirm(&mut tab, "#pause-web", "#resume-web").await;
    assert!(!stage.group("web")["paused_at"].is_null());
    confirm(&mut tab, "#resume-web", "#pause-web").await;
    assert!(stage.group("web")["paused_at"].is_null());
    confirm(&mut tab, "#pause-all", "#resume-all").await;
    assert!(!stage.ctl(&["autoupdate", "status"])["paused_at"].is_null());
    confirm(&mut tab, "#resume-all", "#pause-all").await;
    assert!(stage.ctl(&["autoupdate", "status"])["paused_at"].is_null());

    // A group whose window is closed runs now.
    stage.fleet.let_succeed("canary", 3);
    stage.fleet.let_succeed("staging", 6);
    stage.until("staging", "state", "succeeded").await;
    assert_eq!(stage.group("databases")["state"], "scheduled");
    tab.open("/web/rollout/databases").await;
    confirm(&mut tab, "#run-databases", "#pause-databases").await;
    stage.until("databases", "state", "active").await;
    stage.fleet.let_succeed("databases", 5);
    stage.until("databases", "upgraded", 5).await;
    tab.open("/web/audit?subject=databases").await;
    tab.until(
        "it stands in the audit log",
        "document.querySelector('#event-table').innerText.includes('admin')",
    )
    .await;
    tab.assert_calm().await;
}

/// Clicks through an action, until the rollout's page offers what comes next.
async fn confirm(tab: &mut Tab, button: &str, next: &str) {
    tab.click(button).await;
    tab.until("it asks", "document.querySelector('#confirm') !== null").await;
    tab.assert_calm().await;
    tab.click("#confirm").await;
    tab.until_at("/web/rollout").await;
    tab.until("it says what was done", "document.querySelector('#done')?.innerText.length > 0").await;
    assert!(tab.has(next).await, "no {next}");
    tab.assert_calm().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_reached_by_keyboard_and_seen_to_be() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut tab = chromium.tab_of(&stage.invitation()).await;
    tab.open("/web/").await;
    let places = walk(&tab, "#q").await;
    let expected = ["Skip to the content", "Refit", "Fleet", "Rollout", "Audit", "Sign out"];
    assert_eq!(places[..expected.len()], expected, "{places:?}");
    tab.assert_calm().await;

    // The first thing on a page leads past what is the same on all of them.
    tab.open("/web/rollout").await;
    tab.press("Tab").await;
    assert_eq!(tab.js("document.activeElement.className").await, "skip");
    let shown = "document.activeElement.getBoundingClientRect().top >= 0";
    tab.until("the way past is shown when it has the focus", shown).await;
    tab.press("Enter").await;
    tab.until("the content has the focus", "document.activeElement.id === 'main'").await;
    let places = walk(&tab, "#pause-databases").await;
    for place in ["Set a version…", "Pause the rollout…", "canary", "Run now… databases", "Pause… databases"]
    {
        assert!(places.iter().any(|there| there == place), "no {place:?} in {places:?}");
    }
    tab.press("Enter").await;
    tab.until_at("/web/actions/pause").await;
    walk(&tab, "#confirm").await;
    tab.press("Enter").await;
    tab.until_at("/web/rollout").await;
    assert!(!stage.group("databases")["paused_at"].is_null());

    // Enter in a filter filters.
    tab.open("/web/").await;
    walk(&tab, "#q").await;
    tab.page.find_element("#q").await.unwrap().type_str("db-3").await.unwrap();
    tab.press("Enter").await;
    tab.until("one host is left", "document.querySelectorAll('#host-table tbody tr').length === 1").await;
    assert!(tab.text("#host-table").await.contains("db-3"));
    tab.assert_calm().await;
}

/// Tabs until something has the focus; all that had it says what it is, and is seen to have it.
async fn walk(tab: &Tab, last: &str) -> Vec<String> {
    let mut places = Vec::new();
    for _ in 0..150 {
        tab.press("Tab").await;
        let place = tab
            .js("(() => { const it = document.activeElement; const style = getComputedStyle(it); return [ \
                 it.getAttribute('aria-label') ?? (it.labels?.[0] ?? it).textContent.trim(), \
                 style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 ] })()")
            .await;
        let name = place[0].as_str().unwrap().to_owned();
        assert!(!name.is_empty(), "something without a name behind {places:?}");
        assert_eq!(place[1], true, "{name:?} does not look as if it had the focus");
        places.push(name);
        if tab.js(&format!("document.activeElement.matches({last:?})")).await == true {
            return places;
        }
    }
    panic!("{last} is not reached: {places:?}");
}
