//! Live updates in a browser: an open page follows a rollout without a reload.

use chromiumoxide::cdp::browser_protocol::input::DispatchMouseEventType;

use crate::chromium::Chromium;
use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_seen_to_move_on_a_page_that_stays() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut tab = chromium.tab_of(&stage.invitation()).await;
    tab.open("/web/rollout").await;
    tab.until_live().await;
    tab.js("window.__mark = 1").await;
    let card = |group: &str, text: &str| {
        format!("document.querySelector('.card[data-group={group}]')?.innerText.includes({text:?})")
    };

    stage.choose("15.1.1");
    tab.until("the new version is shown", "document.querySelector('#version').innerText === 'v15.1.1'").await;
    tab.until("the first group begins", &card("canary", "2 in flight")).await;
    stage.fleet.let_succeed("canary", 1);
    tab.until("a host arrives", &card("canary", "1 upgraded")).await;
    let width =
        "Number(document.querySelector('.card[data-group=canary] .bar .upgraded').getAttribute('width'))";
    assert_eq!(tab.js(width).await, 333);
    stage.fleet.let_succeed("canary", 2);
    tab.until("the bar is full", &format!("{width} === 1000")).await;
    stage.fleet.let_succeed("staging", 6);
    tab.until("the next one has succeeded", &card("staging", "6 upgraded")).await;
    let node = "document.querySelector('svg .node[data-group=staging]').classList.contains('succeeded')";
    tab.until("so it is in the picture", node).await;
    let lane = |group: &str, class: &str| {
        format!("document.querySelector('.lane[data-group={group}] .{class}') !== null")
    };
    tab.until("and on the timeline", &lane("staging", "upgraded")).await;
    tab.until("where the next group is under way", &lane("web", "in_flight")).await;
    tab.until("and the last one is planned", &lane("databases", "planned")).await;
    tab.until("the window of another is closed", &card("databases", "opens")).await;

    // Where the reader is stays, while what they read changes.
    tab.mouse(DispatchMouseEventType::MousePressed, "#pause-all").await;
    tab.js("document.querySelector('#pause-web').focus()").await;
    tab.js("getSelection().selectAllChildren(document.querySelector('#group-web'))").await;
    stage.fleet.let_succeed("web", 3);
    tab.until("hosts arrive", &card("web", "3 upgraded")).await;
    assert_eq!(tab.js("document.activeElement.id").await, "pause-web");
    assert_eq!(tab.js("getSelection().toString()").await, "web");
    assert_eq!(tab.js("window.__mark").await, 1, "the page was loaded again");
    tab.mouse(DispatchMouseEventType::MouseReleased, "#pause-all").await;
    tab.until_at("/web/actions/pause").await;
    tab.click("#cancel").await;
    tab.until_at("/web/rollout").await;
    tab.js("window.__mark = 1").await;
    stage.fleet.let_fail("web", 3);
    tab.until(
        "the group halts",
        "document.querySelector('.card[data-group=web]').dataset.state === 'halted'",
    )
    .await;
    assert_eq!(tab.js("window.__mark").await, 1, "the page was loaded again");
    tab.assert_calm().await;

    // A failure can be followed to its reason, on pages that are live too.
    tab.open("/web/rollout/web?outcome=failed").await;
    let failed = "document.querySelectorAll('#host-table [data-state=failed]').length";
    assert_eq!(tab.js(failed).await, 3);
    tab.click("#host-table tbody a").await;
    tab.until("the host is shown", "document.querySelector('#failure-step') !== null").await;
    assert_eq!(tab.text("#failure-step").await, crate::fleet::STEP);
    assert_eq!(tab.text("#failure-message").await, crate::fleet::REASON);
    tab.assert_calm().await;
    tab.open("/web/audit").await;
    tab.until_live().await;
    tab.js("window.__mark = 1").await;
    stage.ctl(&["autoupdate", "pause"]);
    let paused = "document.querySelector('#event-table tbody tr').innerText.toLowerCase().includes('paused')";
    tab.until("the event comes by itself", paused).await;
    tab.open("/web/").await;
    let old = "Number(document.querySelector('#by-version [data-name=\"v15.1.0\"]').dataset.count)";
    assert_eq!(tab.js(old).await, 26);
    tab.assert_calm().await;
}

/// A page whose stream is at hand, to know what it has heard and to have it hear no more, and which does nothing by
/// the clock.
const EAR: &str = "window.__heard = 0;
    const Stream = window.EventSource;
    window.EventSource = class extends Stream {
      constructor(...given) {
        super(...given);
        window.__stream = this;
        this.addEventListener('changed', () => { window.__heard += 1; });
      }
    };
    window.setInterval = () => 0;
    window.__fetch = window.fetch;";

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_while_a_page_is_fetched_or_cannot_be_is_shown_without_another_change() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut tab = chromium.tab_of(&stage.invitation()).await;
    tab.begin_pages_with(EAR).await;

    tab.open("/web/rollout").await;
    tab.until_live().await;
    tab.js("window.fetch = async () => { window.__failed = 1; throw new TypeError('away'); }; 1").await;
    stage.ctl(&["autoupdate", "pause", "--group", "web"]);
    tab.until("it asks in vain", "window.__failed === 1").await;
    tab.js("__stream.close(); window.fetch = __fetch; 1").await;
    tab.until("it asks again by itself", "document.querySelector('#resume-web') !== null").await;

    tab.open("/web/rollout").await;
    tab.until_live().await;
    tab.js("window.fetch = async (...asked) => {
           const answer = await __fetch(...asked);
           await new Promise((go) => { window.__go = go; });
           return answer;
         }; 1")
        .await;
    stage.ctl(&["autoupdate", "resume", "--group", "web"]);
    tab.until("an answer is held back", "typeof window.__go === 'function'").await;
    let heard = tab.js("window.__heard").await;
    stage.ctl(&["autoupdate", "pause", "--group", "databases"]);
    tab.until("the next change is heard", &format!("__heard > {heard}")).await;
    tab.js("__stream.close(); window.fetch = __fetch; __go(); 1").await;
    tab.until("the first is shown", "document.querySelector('#pause-web') !== null").await;
    tab.until("so is the next", "document.querySelector('#resume-databases') !== null").await;
    tab.assert_calm().await;
}

/// A page whose clock is at hand.
const CLOCK: &str = "window.setInterval = (act) => { window.__tick = act; return 0; };";

#[tokio::test(flavor = "multi_thread")]
async fn words_for_times_do_not_grow_old_while_nothing_changes() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let mut tab = chromium.tab_of(&stage.invitation()).await;
    tab.begin_pages_with(CLOCK).await;
    tab.open("/web/rollout").await;
    tab.until_live().await;
    tab.js("window.__mark = 1").await;
    let words = "document.querySelector('#rollout-status').innerText.match(/\\(.* ago\\)/)[0]";
    let read = tab.js(words).await;
    tab.until("other words", &format!("(__tick(), {words} !== {read})")).await;
    assert_eq!(tab.js("window.__mark").await, 1, "the page was loaded again");
    tab.assert_calm().await;
}

/// A page that begins to listen when it is told to.
const DEAF: &str = "const Stream = window.EventSource;
    window.EventSource = class {
      heard = [];
      constructor(...given) {
        window.__listen = () => {
          const stream = new Stream(...given);
          this.heard.forEach(([name, act]) => stream.addEventListener(name, act));
        };
      }
      addEventListener(...given) { this.heard.push(given); }
    };";

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_before_a_page_listens_is_shown() {
    let _turn = crate::turn().await;
    let stage = Stage::set().await;
    let chromium = Chromium::start(&stage).await;
    let (witness, mut tab) =
        (chromium.tab_of(&stage.invitation()).await, chromium.tab_of(&stage.invitation()).await);
    tab.begin_pages_with(DEAF).await;
    tab.open("/web/rollout").await;
    witness.open("/web/rollout").await;
    stage.ctl(&["autoupdate", "pause", "--group", "web"]);
    let paused = "document.querySelector('#resume-web') !== null";
    witness.until("who listens is told", paused).await;
    assert_eq!(tab.js(paused).await, false);
    tab.js("__listen()").await;
    tab.until("who begins to is told too", paused).await;
    tab.assert_calm().await;
}
