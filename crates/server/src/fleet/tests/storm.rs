//! A whole fleet reports at once on a slow store: only the reporting streams wait.

use refit_backend::SharedBackend;
use refit_testbed::eventually;
use tokio::task::JoinSet;

use super::bare::WITHIN;
use super::{Bare, beat, group, held_backend, host, store};
use crate::find::Answers;

/// More than are written at once and wait in the channel together.
const HOSTS: u128 = 2000;

#[tokio::test]
async fn an_operator_does_not_wait_behind_a_fleet_that_reports() {
    let held = held_backend(store());
    let backend: SharedBackend = held.clone();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![group("all", 50)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 2).await;
    for n in 5..=HOSTS {
        bare.joins(n).await;
    }
    held.hold("/instances/");
    let mut reporting = JoinSet::new();
    for n in 5..=HOSTS {
        let (fleet, connection) = (bare.fleet.clone(), bare.connection(n));
        reporting.spawn(async move { fleet.heartbeat(host(n), &connection, beat("1.0.0", n, 0)).await });
    }
    let is_full = async || held.held() >= 512;
    eventually("as many as may are being written", WITHIN, is_full).await;

    bare.rollouts.set_paused(None, true, "alice").await.unwrap();
    assert!(bare.rollouts.status().paused_at.is_some(), "it is in force when the call returns");
    assert!(!bare.fleet.answer(Some(host(1))).auto_update, "who was told is not told any more");
    let answered = reporting.try_join_next();
    assert!(answered.is_none(), "those who report are still waiting: {answered:?}");
    assert!(held.held() <= 512 + 256, "{} writes at once", held.held());

    held.release();
    while let Some(heard) = reporting.join_next().await {
        heard.unwrap().unwrap();
    }
    let known = |n| bare.known(n).report.is_some();
    eventually("all are known", WITHIN, async || (5..=HOSTS).all(known)).await;
}
