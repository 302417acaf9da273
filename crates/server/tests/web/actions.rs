//! Actions of the dashboard: confirmation, permissions by role, and audit events in the user's name.

use refit_testbed::{eventually, publish};
use serde_json::json;

use crate::browser::{Browser, value_of};
use crate::world::{NEW, SOON, World, group, regular};

const ACTIONS: [(&str, &str); 4] =
    [("run", "prod-group"), ("pause", "prod-group"), ("resume", "prod-group"), ("pause", "")];

async fn world() -> World {
    let world = World::start(1).await;
    publish(&world.artifacts(), &["15.2.0", "14.0.0"]);
    world.configure(regular(&[group("prod-group", "prod", false, json!({}))])).await;
    world.choose(NEW, "regular").await;
    world.add(1..4, "prod").await;
    world.until("prod-group", |group| group.newcomers == 3).await;
    world
}

async fn last_event(world: &World) -> (String, String, String) {
    let event = world.events().await.pop().unwrap();
    (event.actor, event.r#type, event.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_no_buttons_and_is_refused_anyway() {
    let world = world().await;
    let before = world.events().await.len();
    let mut viewer = Browser::signed_in(&world.store, &world.servers[0], "vera", "viewer").await;
    for path in ["/web/rollout", "/web/rollout/prod-group"] {
        let page = viewer.page(path).await;
        assert!(!page.contains("data-action") && !page.contains("choose-version"), "{page}");
        assert_eq!(
            page.matches("<button").count(),
            if path == "/web/rollout" { 1 } else { 2 },
            "sign out, show"
        );
    }
    let token = viewer.token().await;
    for (action, group) in ACTIONS {
        let asked = viewer.get(&format!("/web/actions/{action}?group={group}")).await;
        assert_eq!(asked.status, 403, "{action}");
        let done =
            viewer.post(&format!("/web/actions/{action}"), &[("token", &token), ("group", group)]).await;
        assert_eq!(done.status, 403, "{action}");
        assert!(done.body.contains("with the roles viewer may not"), "{}", done.body);
    }
    assert_eq!(viewer.get("/web/version").await.status, 403);
    let form = [("token", token.as_str()), ("version", "15.2.0"), ("schedule", "regular"), ("revision", "")];
    assert_eq!(viewer.post("/web/version", &form).await.status, 403);
    assert_eq!(world.events().await.len(), before + 1, "only that she signed in");

    // Who edits one thing does not see what edits the other.
    let mut editor = Browser::signed_in(&world.store, &world.servers[0], "rolf", "rollout-editor").await;
    let page = editor.page("/web/rollout").await;
    assert!(page.contains("id=\"run-prod-group\"") && !page.contains("choose-version"), "{page}");
    assert_eq!(editor.get("/web/version").await.status, 403);
    let mut chooser = Browser::signed_in(&world.store, &world.servers[0], "veit", "version-editor").await;
    let page = chooser.page("/web/rollout").await;
    assert!(!page.contains("data-action") && page.contains("choose-version"), "{page}");
    assert_eq!(chooser.get("/web/actions/run?group=prod-group").await.status, 403);
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_ask_once_say_what_happens_and_are_told_of_in_the_right_name() {
    let world = world().await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "rita", "rollout-editor").await;
    for (action, told, event, message) in [
        (
            "pause",
            &["No more hosts of prod-group are told to update"][..],
            "rollout.paused",
            "rita paused prod-group",
        ),
        ("resume", &["may be told to update to v15.1.0 again"], "rollout.resumed", "rita resumed prod-group"),
        (
            "run",
            &["A window of prod-group opens now, for 1 hour:", "3 newcomers become members of it before."],
            "group.run",
            "rita ran prod-group by hand",
        ),
    ] {
        let before = world.events().await.len();
        let asked = browser.page(&format!("/web/actions/{action}?group=prod-group")).await;
        assert!(told.iter().all(|told| asked.contains(told)) && asked.contains("id=\"confirm\""), "{asked}");
        assert_eq!(world.events().await.len(), before, "to look is not to do");
        let form = [("token", value_of(&asked, "token")), ("group", value_of(&asked, "group"))];
        let done = browser.post(&format!("/web/actions/{action}"), &form).await;
        assert_eq!(done.status, 303, "{}", done.body);
        let page = browser.page(done.header("location").unwrap()).await;
        assert!(page.contains("id=\"done\"") && page.contains("prod-group"), "{page}");
        let events = world.events().await;
        assert!(
            events.iter().any(
                |e| (e.actor.as_str(), e.r#type.as_str(), e.message.as_str()) == ("rita", event, message)
            ),
            "{events:?}"
        );
    }
    world.until("prod-group", |group| group.in_flight == 3).await;
    let all = browser.page("/web/actions/pause").await;
    assert!(
        all.contains("No more hosts are told to update to v15.1.0, in a group or not.")
            && all.contains("Of the 3 hosts in flight, those that have switched finish"),
        "{all}"
    );
    for path in ["/web/actions/run", "/web/actions/run?group=nosuch", "/web/actions/explode?group=prod-group"]
    {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
    let token = browser.token().await;
    let none = browser.post("/web/actions/run", &[("token", &token), ("group", "nosuch")]).await;
    assert_eq!(none.status, 404, "{}", none.body);
    eventually("the audit page shows it", SOON, || async {
        let mut browser =
            Browser { cookie: browser.cookie.clone(), ..Browser::open(&world.servers[0]).await };
        browser.page("/web/audit?kind=group.run&actor=rita").await.contains("rita ran prod-group by hand")
    })
    .await;
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_set_after_its_plan_was_seen() {
    let world = world().await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "vita", "version-editor").await;
    assert!(browser.page("/web/version").await.contains("id=\"present\">v15.1.0<"));
    let wrong = browser.page("/web/version?version=latest").await;
    assert!(wrong.contains("id=\"version-fault\"") && !wrong.contains("id=\"choose\""), "{wrong}");
    let shown = browser.page("/web/version?version=15.2.0&schedule=regular").await;
    assert!(shown.contains("Agents are to run v15.2.0 (regular) instead of v15.1.0 (regular)"), "{shown}");
    assert!(shown.contains("data-group=\"prod-group\""), "{shown}");
    let form: Vec<(&str, &str)> =
        ["token", "version", "schedule", "revision"].map(|name| (name, value_of(&shown, name))).into();
    assert_eq!(world.rollout().await.version, NEW, "to look is not to do");

    // Somebody else is quicker.
    world.choose("15.1.5", "regular").await;
    let late = browser.post("/web/version", &form).await;
    assert_eq!(late.status, 409, "{}", late.body);
    assert_eq!(world.rollout().await.version, "15.1.5");

    let shown = browser.page("/web/version?version=14.0.0&schedule=immediate").await;
    assert!(shown.contains("This is a downgrade: agents go from v15.1.5 back to v14.0.0."), "{shown}");
    let mut form: Vec<(&str, &str)> =
        ["token", "version", "schedule", "revision"].map(|name| (name, value_of(&shown, name))).into();
    let refused = browser.post("/web/version", &form).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("lower major version"), "{}", refused.body);
    form.push(("allow_major_downgrade", "yes"));
    let done = browser.post("/web/version", &form).await;
    assert_eq!(
        (done.status, done.header("location")),
        (303, Some("/web/rollout?done=version&version=14.0.0")),
        "{}",
        done.body
    );
    let rollout = world.rollout().await;
    assert_eq!((rollout.version.as_str(), rollout.schedule.as_str()), ("14.0.0", "immediate"));
    let told = world.events().await.into_iter().rfind(|event| event.subject == "autoupdate_version").unwrap();
    assert_eq!((told.actor.as_str(), told.r#type.as_str()), ("vita", "resource.updated"));
    assert!(told.differences.iter().any(|one| one.path == "spec.agent_version" && one.after == "\"14.0.0\""));
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_published_is_set_only_if_that_is_meant() {
    let world = world().await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "vita", "version-editor").await;
    let listed = browser.page("/web/version").await;
    let listed = listed.split_once("id=\"published\"").unwrap().1;
    assert!(
        listed.contains("data-version=\"15.2.0\"") && listed.contains("data-version=\"14.0.0\""),
        "{listed}"
    );
    let shown = browser.page("/web/version?version=15.2.0").await;
    assert!(!shown.contains("allow-missing"), "{shown}");
    let shown = browser.page("/web/version?version=15.9.9").await;
    assert!(shown.contains("15.9.9 is not published for oss linux/"), "{shown}");
    assert!(
        shown.contains("Published there: 15.2.0 (oss linux/") && shown.contains("id=\"allow-missing\""),
        "{shown}"
    );
    let mut form: Vec<(&str, &str)> =
        ["token", "version", "schedule", "revision"].map(|name| (name, value_of(&shown, name))).into();
    let refused = browser.post("/web/version", &form).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("15.9.9 is not published"), "{}", refused.body);
    assert_eq!(world.rollout().await.version, NEW);
    form.push(("allow_missing", "yes"));
    let done = browser.post("/web/version", &form).await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(world.rollout().await.version, "15.9.9");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_with_build_metadata_arrives_as_it_is_listed() {
    let world = world().await;
    publish(&world.artifacts(), &["15.2.0+x"]);
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "vita", "version-editor").await;
    let listed = browser.page("/web/version").await;
    let entry = listed.split_once("data-version=\"15.2.0+x\"").unwrap().1;
    let link = entry.split_once("href=\"").unwrap().1.split_once('"').unwrap().0;
    let shown = browser.page(link).await;
    assert_eq!(value_of(&shown, "version"), "15.2.0+x", "{link}");
    assert!(shown.contains("id=\"choose\"") && !shown.contains("id=\"version-fault\""), "{shown}");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immediate_version_is_refused_while_the_rollout_is_paused() {
    let world = world().await;
    world.pause("").await.unwrap();
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "vita", "version-editor").await;
    let shown = browser.page("/web/version?version=15.2.0&schedule=immediate").await;
    assert!(shown.contains("The rollout is paused: no host is told before it is resumed."), "{shown}");
    let mut form: Vec<(&str, &str)> =
        ["token", "version", "schedule", "revision"].map(|name| (name, value_of(&shown, name))).into();
    let refused = browser.post("/web/version", &form).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.body.contains("refitctl autoupdate resume"), "{}", refused.body);
    assert_eq!(world.rollout().await.version, NEW);
    form.push(("even_if_paused", "yes"));
    let done = browser.post("/web/version", &form).await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(world.rollout().await.version, "15.2.0");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_without_hosts_is_told_of_and_marked_done() {
    let world = World::start(1).await;
    world.add(1..4, "prod").await;
    world.configure(regular(&[group("canary", "staging", true, json!({}))])).await;
    world.choose(NEW, "regular").await;
    world.until("canary", |group| group.waiting == "blocked: selects no hosts").await;
    let mut viewer = Browser::signed_in(&world.store, &world.servers[0], "vera", "viewer").await;
    let shown = viewer.page("/web/rollout").await;
    assert!(shown.contains("blocked: selects no hosts") && !shown.contains("mark-done-canary"), "{shown}");
    let mut editor = Browser::signed_in(&world.store, &world.servers[0], "rita", "rollout-editor").await;
    let shown = editor.page("/web/rollout").await;
    assert!(shown.contains("id=\"mark-done-canary\""), "{shown}");
    assert!(shown.contains("selects none of 3 hosts"), "the plan warns: {shown}");
    let asked = editor.page("/web/actions/mark-done?group=canary").await;
    assert!(asked.contains("Mark group canary as done?"), "{asked}");
    let form = [("token", value_of(&asked, "token")), ("group", "canary")];
    let done = editor.post("/web/actions/mark-done", &form).await;
    assert_eq!(done.status, 303, "{}", done.body);
    let shown = editor.page("/web/rollout").await;
    assert!(shown.contains("marked done at") && shown.contains("by rita"), "{shown}");
    let (actor, kind, _) = last_event(&world).await;
    assert_eq!((actor.as_str(), kind.as_str()), ("rita", "group.marked_done"));
    world.shut_down().await;
}
