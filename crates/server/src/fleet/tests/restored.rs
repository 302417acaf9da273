//! A store that is replaced by a backup of itself under a running server.

use refit_backend::SharedBackend;
use refit_testbed::{InterceptedBackend, eventually};

use super::bare::WITHIN;
use super::{Bare, beat, group, host, store};

#[tokio::test]
async fn what_was_known_of_a_store_that_has_gone_back_in_time_is_forgotten() {
    let backup: SharedBackend = store();
    Bare::with_hosts(&backup, 2).await;
    let replaceable = InterceptedBackend::new(store(), ());
    let backend: SharedBackend = replaceable.clone();
    let bare = Bare::with_hosts(&backend, 4).await;
    bare.say(vec![group("all", 100)], "2.0.0").await;
    bare.until("all", |record| record.in_flight == 4).await;

    replaceable.replace(backup.clone());
    bare.rollouts.operator_changed().await.unwrap();
    assert!(bare.fleet.view().rollout.is_none(), "nothing is rolled out in the backup");
    eventually("the hosts of the backup", WITHIN, async || {
        let view = bare.fleet.view();
        view.is_loaded && view.hosts.len() == 2
    })
    .await;
    assert!(!bare.fleet.view().answer(Some(host(1)), bare.fleet.clock()).auto_update);
    // And it goes on from there.
    bare.say(vec![group("all", 100)], "3.0.0").await;
    let record = bare.until("all", |record| record.in_flight == 2).await;
    assert_eq!((record.epoch, record.members), (1, 2));
    bare.hears(1, &beat("3.0.0", 1, 0)).await;
    bare.until("all", |record| record.upgraded == 1).await;
}
