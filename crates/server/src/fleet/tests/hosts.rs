//! Hosts that join, report, move and leave.

use refit_backend::SharedBackend;
use refit_testbed::eventually;
use refit_types::{AgentRole, HostId, HostRecord};
use uuid::Uuid;

use super::bare::WITHIN;
use super::{Bare, beat, host, store};
use crate::fleet::{Fleet, HeartbeatResult};

const KNOWN: HeartbeatResult = HeartbeatResult::Known { duplicate: false };

#[tokio::test]
async fn a_stolen_token_does_not_take_over_a_host() {
    let bare = Bare::new(&store(), "s1");
    let (fleet, node) = (&bare.fleet, [AgentRole::Node]);
    fleet.join(host(1), "web", &node, false).await.unwrap();
    fleet.join(host(1), "web", &node, false).await.expect("an answer that was lost is asked for again");
    bare.hears(1, &beat("1.0.0", 1, 0)).await;
    let refused = fleet.join(host(1), "evil", &node, false).await.unwrap_err().to_string();
    assert!(refused.contains("has joined already") && refused.contains("refitctl nodes rm"), "{refused}");
    fleet.join(host(1), "web", &[AgentRole::Kube], true).await.expect("by its own certificate");
    bare.backend.delete(&Fleet::key(host(1)).unwrap()).await.unwrap();
    fleet.join(host(1), "web", &node, false).await.expect("after it was removed");
}

#[tokio::test]
async fn servers_see_each_others_hosts() {
    let backend: SharedBackend = store();
    let (one, two) = (Bare::new(&backend, "s1"), Bare::new(&backend, "s2"));
    one.joins(7).await;
    one.joins(8).await;
    assert_eq!(one.hears(8, &beat("1.0.0", 1, 0)).await, KNOWN);
    let version = |bare: &Bare, n| {
        let known = bare.fleet.known(host(n))?.0;
        Some((known.server.as_deref()?.to_owned(), known.report.as_ref()?.version.to_string()))
    };
    let seen = |server: &str, wanted: &str| Some((server.to_owned(), wanted.to_owned()));
    eventually("the other server's hosts", WITHIN, async || version(&two, 8) == seen("s1", "1.0.0")).await;
    // The host moves to the second server: the first one's departure must not make it look away.
    assert_eq!(two.hears(8, &beat("1.0.1", 1, 0)).await, KNOWN);
    eventually("the move", WITHIN, async || version(&one, 8) == seen("s2", "1.0.1")).await;
    let stream = one.connection(8).stream;
    one.fleet.disconnected(host(8), Some(stream), Uuid::from_u128(1)).await;
    one.joins(9).await;
    assert_eq!(version(&two, 8), seen("s2", "1.0.1"));
    two.loses(8, 1).await;
    assert_eq!(two.hears(99, &beat("1.0.0", 1, 0)).await, HeartbeatResult::Removed);
}

#[tokio::test]
async fn a_host_that_reconnects_is_not_taken_for_gone() {
    let bare = Bare::with_hosts(&store(), 1).await;
    let (old, new) = (bare.connection(1), bare.fleet.connect());
    bare.fleet.heartbeat(host(1), &new, beat("1.0.0", 1, 0)).await.unwrap();
    bare.fleet.disconnected(host(1), Some(old.stream), Uuid::from_u128(1)).await;
    // Whatever was sent before this has been taken in when it is answered.
    bare.fleet.heartbeat(host(1), &new, beat("1.0.1", 1, 0)).await.unwrap();
    assert_eq!(bare.known(1).server.as_deref(), Some("s1"));
    bare.fleet.disconnected(host(1), Some(new.stream), Uuid::from_u128(1)).await;
    eventually("it is gone", WITHIN, async || bare.known(1).server.is_none()).await;
}

#[tokio::test]
async fn a_heartbeat_that_says_nothing_new_writes_nothing_and_is_answered_by_its_own_stream() {
    let bare = Bare::with_hosts(&store(), 1).await;
    let (_, written) = bare.fleet.known(host(1)).unwrap();
    let before = bare.fleet.view();
    for _ in 0..3 {
        assert_eq!(bare.hears(1, &beat("1.0.0", 1, 0)).await, KNOWN);
    }
    assert_eq!(bare.fleet.known(host(1)).unwrap().1, written);
    let after = bare.fleet.view();
    assert!(after.counters.changes == before.counters.changes, "the owner was not asked");
    assert!(after.last_seen(&bare.known(1)) > before.known(host(1)).unwrap().0.last_seen);
}

#[tokio::test]
async fn versions_are_counted_as_hosts_come_change_and_go() {
    let bare = Bare::new(&store(), "s1");
    let count = |version: Option<&str>| {
        let version = version.map(|version| version.parse().unwrap());
        bare.fleet.versions().get(&version).copied()
    };
    bare.knows(0).await;
    for n in 1..=3 {
        bare.joins(n).await;
    }
    assert_eq!(count(None), Some(3));
    for (n, version) in [(1, "1.0.0"), (2, "1.0.0"), (1, "1.0.1")] {
        bare.hears(n, &beat(version, 5, 0)).await;
    }
    assert_eq!((count(None), count(Some("1.0.0")), count(Some("1.0.1"))), (Some(1), Some(1), Some(1)));
    let before = bare.fleet.changes();
    bare.backend.delete(&Fleet::key(host(2)).unwrap()).await.unwrap();
    eventually("it is gone", WITHIN, async || count(Some("1.0.0")).is_none()).await;
    assert!(bare.fleet.changes() > before);
    let again = Bare::new(&bare.backend, "s2");
    again.knows(2).await;
    assert_eq!(again.fleet.versions(), bare.fleet.versions(), "as if it had been counted from the start");
}

#[tokio::test]
async fn a_walk_sees_every_host_once_and_pages_are_filtered_and_in_order() {
    let backend = store();
    for n in 1..=2500 {
        let host_record = HostRecord::joined(host(n), "web", vec![AgentRole::Node], jiff::Timestamp::now());
        let record = serde_json::to_vec(&host_record).unwrap();
        backend.put(&Fleet::key(host(n)).unwrap(), record.into()).await.unwrap();
    }
    let bare = Bare::new(&backend, "s1");
    bare.knows(2500).await;
    let mut seen = Vec::new();
    bare.fleet.walk(Some(host(100)), |some| {
        seen.extend(some.iter().map(|host_record| host_record.host_id));
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(seen, (101..=2500).map(host).collect::<Vec<HostId>>());
    let even = |host_record: &HostRecord| host_record.host_id.uuid().as_u128().is_multiple_of(2);
    let ids = |page: &[std::sync::Arc<HostRecord>]| {
        page.iter().map(|host_record| host_record.host_id.uuid().as_u128()).collect::<Vec<_>>()
    };
    let (first, more) = bare.fleet.view().page(None, 3, even);
    assert_eq!((ids(&first), more), (vec![2, 4, 6], true));
    let (rest, more) = bare.fleet.view().page(Some(host(2496)), 3, even);
    assert_eq!((ids(&rest), more), (vec![2498, 2500], false));
}
