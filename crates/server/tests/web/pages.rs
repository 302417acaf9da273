//! Pages of the dashboard: paging, filters, escaping of hostile names, and use without scripts.

use std::collections::BTreeSet;

use refit_testbed::eventually;
use refit_types::Labels;
use serde_json::json;

use crate::browser::{Browser, encoded};
use crate::world::{NEW, OLD, SOON, World, group, host, regular};

const HOSTILE: &str = "<script>alert('x')</script>";

/// What stands in an attribute, for every time that it does.
fn all<'p>(page: &'p str, attribute: &str) -> Vec<&'p str> {
    let begins = format!("{attribute}=\"");
    page.split(begins.as_str()).skip(1).map(|after| after.split('"').next().unwrap()).collect()
}

fn next(page: &str) -> Option<String> {
    let (_, after) = page.split_once("id=\"next-page\"")?;
    let (_, after) = after.split_once("href=\"")?;
    let address = after.split('"').next()?.replace("&#38;", "&");
    Some(address.split('#').next()?.to_owned())
}

async fn until_shown(browser: &mut Browser, path: &str, wanted: &str) -> String {
    let browser = tokio::sync::Mutex::new(browser);
    let seen = tokio::sync::Mutex::new(String::new());
    eventually(&format!("{path} shows {wanted}"), SOON, || async {
        *seen.lock().await = browser.lock().await.page(path).await;
        seen.lock().await.contains(wanted)
    })
    .await;
    seen.into_inner()
}

/// A download that fails is told on the page of the host, and is no failure of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_an_update_from_beginning_is_on_the_page_of_the_host() {
    let world = World::start(1).await;
    world.configure(regular(&[group("prod-group", "prod", true, json!({}))])).await;
    world.add(1..2, "prod").await;
    world.choose(NEW, "regular").await;
    world.until("prod-group", |group| group.in_flight == 1).await;
    world
        .change(host(1), |host| {
            let attempt = host.upgrade.as_ref().unwrap().attempt;
            crate::world::updater(host).obstacle = Some(refit_types::UpdateObstacle {
                attempt,
                version: NEW.parse().ok(),
                step: "download".into(),
                reason: "404 Not Found".into(),
                at: jiff::Timestamp::now(),
                tries: 3,
                next_try: Some(jiff::Timestamp::now()),
            });
        })
        .await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "alice", "admin").await;
    let path = format!("/web/hosts/{}", host(1));
    let obstacle = "could not begin at download: 404 Not Found (tried 3 times)";
    until_shown(&mut browser, &path, obstacle).await;
    let page = browser.page(&path).await;
    assert_eq!(page.matches(obstacle).count(), 2, "as its reason, and among what its updater says: {page}");
    assert!(page.contains("tries again at") && !page.contains("Last failure"), "{page}");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_thousand_hosts_are_complete_and_in_order() {
    let world = World::start(1).await;
    world.add(1..1001, "prod").await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "alice", "viewer").await;
    until_shown(&mut browser, "/web/", "<b id=\"host-count\">1000</b>").await;
    let (mut path, mut seen, mut pages) = ("/web/".to_owned(), Vec::new(), 0);
    loop {
        let page = browser.page(&path).await;
        let table = page.split_once("id=\"host-table\"").unwrap().1;
        let hosts: Vec<String> = all(table, "data-host").into_iter().map(str::to_owned).collect();
        assert!((1..=50).contains(&hosts.len()));
        seen.extend(hosts);
        pages += 1;
        match next(&page) {
            Some(next) => path = next,
            None => break,
        }
    }
    assert_eq!(pages, 20);
    assert_eq!(seen, (1..1001).map(|n| host(n).to_string()).collect::<Vec<_>>());
    // A host that goes meanwhile moves none of the others.
    let second = browser.page(&format!("/web/?after={}", seen[49])).await;
    world
        .nodes()
        .delete_node(refit_proto::nodes::v1::DeleteNodeRequest { host_id: seen[3].clone() })
        .await
        .unwrap();
    until_shown(&mut browser, "/web/", "<b id=\"host-count\">999</b>").await;
    let again = browser.page(&format!("/web/?after={}", seen[49])).await;
    assert_eq!(all(&second, "data-host"), all(&again, "data-host"));
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_found_by_name_label_state_and_group() {
    let world = World::start(1).await;
    world.configure(regular(&[group("prod-group", "prod", false, json!({}))])).await;
    world.choose(NEW, "regular").await;
    world.add(1..61, "prod").await;
    world.add(61..64, "staging").await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "alice", "viewer").await;
    until_shown(&mut browser, "/web/", "<b id=\"host-count\">63</b>").await;
    until_shown(&mut browser, "/web/?group=prod-group", "data-state=\"unchanged\"").await;
    world.arrives(host(63), NEW).await;
    until_shown(&mut browser, &format!("/web/?version=v{NEW}"), &host(63).to_string()).await;
    let mut found = async |query: &[(&str, &str)]| -> BTreeSet<String> {
        let mut path = format!("/web/?{}", encoded(query));
        let mut hosts = BTreeSet::new();
        loop {
            let page = browser.page(&path).await;
            let table = page.split_once("id=\"host-table\"").map_or("", |(_, table)| table);
            hosts.extend(all(table, "data-host").into_iter().map(str::to_owned));
            match next(&page) {
                Some(next) => path = next,
                None => return hosts,
            }
        }
    };
    let ids = |numbers: std::ops::Range<u128>| -> BTreeSet<String> {
        numbers.map(|n| host(n).to_string()).collect()
    };
    assert_eq!(found(&[]).await, ids(1..64));
    assert_eq!(found(&[("q", "HOST-63")]).await, ids(63..64));
    assert_eq!(found(&[("q", &host(17).to_string())]).await, ids(17..18));
    assert_eq!(found(&[("labels", "labels[\"environment\"] == \"staging\"")]).await, ids(61..64));
    assert_eq!(
        found(&[("labels", "has(labels.environment) && !(labels.environment == \"staging\")")]).await,
        ids(1..61)
    );
    assert_eq!(found(&[("group", "prod-group")]).await, ids(1..61));
    assert_eq!(found(&[("group", "-")]).await, ids(61..64));
    assert_eq!(found(&[("state", "unchanged")]).await, ids(1..61));
    assert_eq!(found(&[("state", "ungrouped")]).await, ids(61..64));
    assert_eq!(found(&[("state", "failed")]).await, ids(0..0));
    assert_eq!(found(&[("state", "ungrouped"), ("q", "host-62")]).await, ids(62..63));
    assert_eq!(found(&[("version", NEW)]).await, ids(63..64));
    assert_eq!(found(&[("version", OLD), ("group", "-")]).await, ids(61..63));
    assert_eq!(found(&[("version", "-")]).await, ids(0..0));

    let wrong = browser.page(&format!("/web/?{}", encoded(&[("labels", "labels[\"a\"] = \"<b>\"")]))).await;
    assert!(
        wrong.contains("id=\"labels-fault\"") && wrong.contains("is not an expression over labels"),
        "{wrong}"
    );
    assert!(wrong.contains("aria-describedby=\"labels-fault\"") && wrong.contains("at character"), "{wrong}");
    assert!(
        !wrong.contains("id=\"host-table\"") && !wrong.contains("<b>\""),
        "a fault finds nothing: {wrong}"
    );
    let wrong = browser.page("/web/?state=nosuch").await;
    assert!(wrong.contains("id=\"state-fault\"") && !wrong.contains("id=\"host-table\""));
    let wrong = browser.page("/web/?version=latest").await;
    assert!(wrong.contains("id=\"version-fault\"") && !wrong.contains("id=\"host-table\""));
    assert_eq!(browser.get("/web/?after=nonsense").await.status, 400);
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hosts_say_is_text_on_every_page() {
    let world = World::start(1).await;
    world
        .configure(regular(&[group("prod-group", "prod", true, json!({ "max_failed_before_halt": "0%" }))]))
        .await;
    world.add(1..2, "prod").await;
    world
        .change(host(1), |host| {
            host.hostname = HOSTILE.into();
            let mut labels: Labels = "environment=prod".parse().unwrap();
            labels.insert("note", HOSTILE).unwrap();
            host.report.as_mut().unwrap().instance_labels = labels;
        })
        .await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "alice", "admin").await;
    until_shown(&mut browser, "/web/", "<code>note=").await;
    world.choose(NEW, "regular").await;
    world.until("prod-group", |group| group.in_flight == 1).await;
    world
        .change(host(1), |host| {
            let attempt = host.upgrade.as_ref().unwrap().attempt;
            crate::world::updater(host).last_failure = Some(refit_types::UpdateFailure {
                attempt,
                version: NEW.parse().unwrap(),
                step: HOSTILE.into(),
                reason: HOSTILE.into(),
                at: jiff::Timestamp::now(),
                agent: Some(Box::new(refit_types::FailedAgent {
                    ended: Some(HOSTILE.into()),
                    seen_dead_at: None,
                    last_lines: vec![HOSTILE.into()],
                })),
            });
        })
        .await;
    world.until("prod-group", |group| group.state == "halted").await;
    until_shown(&mut browser, "/web/?state=failed", "data-state=\"failed\"").await;
    let uuid = host(1).to_string();
    let asked = encoded(&[("q", HOSTILE), ("labels", HOSTILE)]);
    for path in [
        "/web/".into(),
        "/web/rollout".into(),
        "/web/rollout/prod-group".into(),
        format!("/web/hosts/{uuid}"),
        "/web/audit".into(),
        format!("/web/?{asked}"),
        format!("/web/audit?{}", encoded(&[("subject", HOSTILE), ("since", HOSTILE)])),
        format!("/web/version?{}", encoded(&[("version", HOSTILE)])),
    ] {
        let page = browser.page(&path).await;
        assert!(!page.contains("<script>"), "{path}: {page}");
        assert!(
            !page.contains(" style=") && !page.contains("onclick") && !page.contains("javascript:"),
            "{path}"
        );
        let external = all(&page, "href")
            .into_iter()
            .chain(all(&page, "src"))
            .find(|link| !link.starts_with('/') && !link.starts_with('#'));
        assert_eq!(external, None, "{path}");
    }
    let page = browser.page(&format!("/web/hosts/{uuid}")).await;
    assert!(page.contains("&#60;script&#62;") || page.contains("&lt;script&gt;"), "it is shown: {page}");
    let missing = browser.get(&format!("/web/rollout/{}", "%3Cscript%3E")).await;
    assert!(missing.status == 404 && !missing.body.contains("<script>"), "{}", missing.body);
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_can_be_read_without_a_script() {
    let world = World::start(1).await;
    let prod = group(
        "prod-group",
        "prod",
        false,
        json!({ "requires": ["staging-group"], "timezone": "Europe/Berlin" }),
    );
    let staging = group(
        "staging-group",
        "staging",
        true,
        json!({ "max_in_flight": "50%", "max_failed_before_halt": "0%" }),
    );
    world.configure(regular(&[staging, prod])).await;
    world.add(1..5, "staging").await;
    world.add(5..9, "prod").await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "alice", "viewer").await;
    until_shown(&mut browser, "/web/", "<b id=\"host-count\">8</b>").await;
    world.choose(NEW, "regular").await;
    let flying = world.until("staging-group", |group| group.in_flight == 2).await;
    assert_eq!(flying.members, 4);
    let page = browser.page("/web/rollout").await;
    for wanted in [
        "id=\"version\">v15.1.0<",
        "data-group=\"staging-group\" data-state=\"active\"",
        "0/4 upgraded, 2 in flight (at most 2), 0 failed, 0 timed out",
        "limit: at most 2 in flight",
        "after: staging-group",
        "not moving: waiting for staging-group",
        "Europe/Berlin",
        "id=\"graph-title\"",
        "staging-group is active: hosts go to 15.1.0",
        "id=\"plan\"",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    let failed = world.flying("staging-group").await[0];
    world.undoes(failed).await;
    world.until("staging-group", |group| group.state == "halted").await;
    let page =
        until_shown(&mut browser, "/web/rollout", "staging-group halted: 1 of 4 failed, limit 0%").await;
    assert!(page.contains("not moving: halted: 1 of 4 failed, limit 0%"), "{page}");
    assert!(page.contains("It does not end by itself."), "{page}");
    let banner = page.split_once("class=\"note bad halt\"").unwrap().1.split_once("</div>").unwrap().0;
    for wanted in [
        "rolled back by its updater at health",
        "The agent ended: exit status 3",
        "<pre class=\"lines\">first\n",
    ] {
        assert!(banner.contains(wanted), "{wanted}: {banner}");
    }
    let plan = page.split_once("id=\"plan\"").unwrap().1;
    let [halted, behind] = ["staging-group", "prod-group"].map(|name| {
        let row = plan.split_once(&format!("data-group=\"{name}\"")).unwrap().1;
        row.split_once("</tr>").unwrap().0
    });
    assert!(halted.contains("<td>halted: 1 of 4 failed, limit 0%</td>"), "{halted}");
    assert!(behind.contains("<td>requires staging-group, which does not end</td>"), "{behind}");
    let hosts = browser.page("/web/rollout/staging-group?outcome=failed").await;
    assert_eq!(all(hosts.split_once("id=\"host-table\"").unwrap().1, "data-host"), [failed.to_string()]);
    let reason = "rolled back by its updater at health: the agent ended (exit status 3)";
    assert!(hosts.contains(reason), "{hosts}");
    let page = browser.page(&format!("/web/hosts/{failed}")).await;
    for wanted in [
        "id=\"failure-step\">health<",
        "id=\"failure-message\">the agent ended (exit status 3)<",
        "<p class=\"ended\">The agent ended: exit status 3, first seen at <time",
        "<pre class=\"lines\">first\n&#60;b&#62;last&#60;/b&#62;\n</pre>",
        "id=\"host-version\">v15.0.0 (oss)<",
        reason,
        "told to update with staging-group, attempt 1",
        "<code>environment=staging</code>",
        "id=\"host-identity\"",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    world
        .change(failed, |host| {
            let platform = refit_types::Platform::new("linux", "debian 13", "arm64").unwrap();
            host.report.as_mut().unwrap().platform = Some(Box::new(platform));
        })
        .await;
    let shown = "id=\"host-platform\">linux/arm64, debian 13<";
    until_shown(&mut browser, &format!("/web/hosts/{failed}"), shown).await;
    assert_eq!(browser.get(&format!("/web/hosts/{}", host(999))).await.status, 404);
    assert_eq!(browser.get("/web/hosts/nonsense").await.status, 404);
    assert_eq!(browser.get("/web/rollout/nosuch").await.status, 404);

    let events = until_shown(&mut browser, "/web/audit?kind=group.halted", "halted: 1 of 4").await;
    assert_eq!(
        BTreeSet::from_iter(all(events.split_once("id=\"event-table\"").unwrap().1, "data-event")),
        BTreeSet::from(["group.halted"])
    );
    let none = browser.page("/web/audit?since=0s").await;
    assert!(none.contains("id=\"no-events\""), "{none}");
    assert!(browser.page("/web/audit?since=soon").await.contains("id=\"since-fault\""));
    let by = browser.page("/web/audit?actor=alice&subject=autoupdate").await;
    assert!(by.contains("created autoupdate_version") && !by.contains("prod-group"), "{by}");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_read_what_operators_said_says_that_it_decides_nothing() {
    let world = World::start(1).await;
    world.configure(regular(&[group("canary", "staging", true, json!({}))])).await;
    world.choose(NEW, "regular").await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "alice", "viewer").await;
    let before = until_shown(&mut browser, "/web/rollout", "canary").await;
    assert!(!before.contains("decides nothing"));
    let key = "/cluster_maintenance_config/v1/default/cluster-maintenance-config";
    let newer = r#"{"spec": {"moonshot": true}}"#;
    refit_backend::Backend::put(&world.backend, &crate::world::key(key), newer.into()).await.unwrap();
    let page = until_shown(&mut browser, "/web/rollout", "This server decides nothing:").await;
    assert!(page.contains(key), "{page}");
    world.shut_down().await;
}
