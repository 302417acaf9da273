//! The dashboard of `refit demo`, opened at the address that it prints.

use refit_testbed::Signal;

use crate::chromium::Chromium;
use crate::demonstration::Demo;

#[tokio::test(flavor = "multi_thread")]
async fn real_hosts_are_seen_to_move_at_the_address_that_is_printed() {
    let _turn = crate::turn().await;
    let mut demo = Demo::start(&["--hosts", "3"]);
    demo.says("(signs you in once").await;
    let told = demo.told("out");
    let address = told.split_whitespace().find(|word| word.contains("/web/login/")).unwrap();
    let pin = demo.ctl(&["status", "--format", "json"]).json()["ca_pin"].as_str().unwrap().to_owned();
    let origin = address.split("/web/").next().unwrap().to_owned();
    let chromium = Chromium::trusting(&pin, origin).await;
    let mut tab = chromium.tab_of(address).await;
    tab.open("/web/rollout").await;
    tab.until_live().await;
    tab.js("window.__mark = 1").await;
    let card = |group: &str, state: &str, text: &str| {
        format!(
            "(() => {{ const card = document.querySelector('.card[data-group={group}]'); \
             return document.querySelector('#version').innerText === 'v1.1.0' \
               && card.dataset.state === {state:?} && card.innerText.includes({text:?}) }})()"
        )
    };
    tab.until("the first host is on its way", &card("canary", "active", "1 in flight")).await;
    for group in ["canary", "staging", "production"] {
        tab.until(&format!("{group} has arrived"), &card(group, "succeeded", "1 upgraded")).await;
    }
    assert_eq!(tab.js("window.__mark").await, 1, "the page was loaded again");
    tab.assert_calm().await;

    tab.open("/web/?q=canary1").await;
    tab.click("#host-table tbody a").await;
    tab.until("the host is shown", "document.querySelector('#host-history') !== null").await;
    assert_eq!(tab.text("#host-version").await, "v1.1.0 (oss)");
    let history = tab.text("#host-history").await;
    assert!(history.contains("went from v1.0.0 to v1.1.0"), "{history}");
    tab.assert_calm().await;

    demo.says("Ctrl-C ends all of it.").await;
    demo.signal(Signal::INT);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(0), "{told}");
    demo.left_nothing();
}
