use refit_backend::MemoryBackend;
use refit_types::{Edition, Report, RotationMark, Session, UpgraderKind};

use super::*;

fn host(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

fn drawn(name: &str) -> Uuid {
    Uuid::from_u128(name.bytes().map(u128::from).sum())
}

fn beat(session: &str, version: &str) -> Heartbeat {
    Heartbeat {
        identity_expires: None,
        hostname: "web".into(),
        report: Report {
            version: version.parse().unwrap(),
            edition: Edition::Oss.into(),
            node_labels: Default::default(),
            instance_labels: "environment=staging".parse().unwrap(),
            upgrader: UpgraderKind::None.into(),
            updater: None,
            session: Session { id: drawn(session), started_at: Timestamp::UNIX_EPOCH },
            rotation: RotationMark::default(),
            hint_acknowledged: 0,
        },
    }
}

#[tokio::test]
async fn a_stolen_token_does_not_take_over_a_host() {
    let fleet = Fleet::new(Arc::new(MemoryBackend::default()), "s1", Timestamp::now);
    let node = [AgentRole::Node];
    fleet.join(host(1), "web", &node, false).await.unwrap();
    fleet.join(host(1), "web", &node, false).await.expect("an answer that was lost is asked for again");
    fleet.heard(host(1), 0, &Arc::default(), &beat("a", "1.0.0")).await.unwrap();
    let refused = fleet.join(host(1), "evil", &node, false).await.unwrap_err().to_string();
    assert!(refused.contains("has joined already") && refused.contains("refitctl nodes rm"), "{refused}");
    fleet.join(host(1), "web", &[AgentRole::Kube], true).await.expect("by its own certificate");
    fleet.backend.delete(&key(host(1)).unwrap()).await.unwrap();
    fleet.refresh(host(1)).await.unwrap();
    fleet.join(host(1), "web", &node, false).await.expect("after it was removed");
}

#[tokio::test]
async fn servers_see_each_others_hosts() {
    let backend: SharedBackend = Arc::new(MemoryBackend::default());
    let one = Fleet::new(backend.clone(), "s1", Timestamp::now);
    one.join(host(7), "early", &[AgentRole::Node], false).await.unwrap();
    let two = Fleet::new(backend, "s2", Timestamp::now);
    let (stop, stopped) = watch::channel(false);
    let following = tokio::spawn(two.clone().follow(stopped));
    one.join(host(8), "late", &[AgentRole::Node], false).await.unwrap();
    one.heard(host(8), 0, &Arc::default(), &beat("a", "1.0.0")).await.unwrap();
    let version = |known: &Instance| known.report.as_ref().map(|report| report.version.to_string());
    let seen = async {
        while two.len() < 2
            || two.page(Some(host(7)), 1, |_| true).0.first().and_then(|i| version(i)).is_none()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the other server's hosts");
    // The host moves to the second server: the first one's departure must not make it look away.
    assert_eq!(
        two.heard(host(8), 0, &Arc::default(), &beat("a", "1.0.1")).await.unwrap(),
        Heard::Known { duplicate: false }
    );
    one.departed(host(8), 0, drawn("a")).await;
    let (page, _) = two.page(Some(host(7)), 1, |_| true);
    assert_eq!((page[0].server.as_deref(), version(&page[0]).as_deref()), (Some("s2"), Some("1.0.1")));
    two.departed(host(8), 0, drawn("a")).await;
    assert_eq!(two.page(Some(host(7)), 1, |_| true).0[0].server, None);
    assert_eq!(two.heard(host(9), 0, &Arc::default(), &beat("a", "1.0.0")).await.unwrap(), Heard::Removed);
    stop.send_replace(true);
    following.await.unwrap();
}

#[tokio::test]
async fn a_host_that_reconnects_is_not_taken_for_gone() {
    let fleet = Fleet::new(Arc::new(MemoryBackend::default()), "s1", Timestamp::now);
    fleet.join(host(1), "web", &[AgentRole::Node], false).await.unwrap();
    let (old, new) = (fleet.new_stream(), fleet.new_stream());
    fleet.heard(host(1), old, &Arc::default(), &beat("a", "1.0.0")).await.unwrap();
    fleet.heard(host(1), new, &Arc::default(), &beat("a", "1.0.0")).await.unwrap();
    fleet.departed(host(1), old, drawn("a")).await;
    assert_eq!(fleet.page(None, 1, |_| true).0[0].server.as_deref(), Some("s1"));
    fleet.departed(host(1), new, drawn("a")).await;
    assert_eq!(fleet.page(None, 1, |_| true).0[0].server, None);
}

#[tokio::test]
async fn versions_are_counted_as_hosts_come_change_and_go() {
    let fleet = Fleet::new(Arc::new(MemoryBackend::default()), "s1", Timestamp::now);
    let count = |version: Option<&str>| {
        let version = version.map(|version| version.parse().unwrap());
        fleet.versions().get(&version).copied()
    };
    for n in 1..=3 {
        fleet.join(host(n), "web", &[AgentRole::Node], false).await.unwrap();
    }
    assert_eq!(count(None), Some(3));
    for (n, version) in [(1, "1.0.0"), (2, "1.0.0"), (1, "1.0.1")] {
        fleet.heard(host(n), 0, &Arc::default(), &beat("a", version)).await.unwrap();
    }
    assert_eq!((count(None), count(Some("1.0.0")), count(Some("1.0.1"))), (Some(1), Some(1), Some(1)));
    let before = fleet.changes();
    fleet.heard(host(2), 0, &Arc::default(), &beat("a", "1.0.0")).await.unwrap();
    assert_eq!(fleet.changes(), before, "it said nothing new");
    fleet.backend.delete(&key(host(2)).unwrap()).await.unwrap();
    fleet.refresh(host(2)).await.unwrap();
    assert_eq!((count(Some("1.0.0")), fleet.changes() > before), (None, true));
    let counted = fleet.versions();
    fleet.tally.reloaded(fleet.hosts.read().unwrap().values().map(|known| &*known.instance));
    assert_eq!(fleet.versions(), counted, "as if it had been counted from the start");
}

#[tokio::test]
async fn a_walk_sees_every_host_once() {
    let fleet = Fleet::new(Arc::new(MemoryBackend::default()), "s1", Timestamp::now);
    for n in 1..=2500 {
        let instance = Instance::joined(host(n), "web", vec![AgentRole::Node], Timestamp::now());
        fleet.stored_as(host(n), instance, Revision(n as u64));
    }
    let mut seen = Vec::new();
    fleet.walk(Some(host(100)), |some| {
        seen.extend(some.iter().map(|instance| instance.host_id));
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(seen, (101..=2500).map(host).collect::<Vec<_>>());
}

#[tokio::test]
async fn pages_are_filtered_and_in_order() {
    let fleet = Fleet::new(Arc::new(MemoryBackend::default()), "s1", Timestamp::now);
    for n in 1..=10 {
        fleet.join(host(n), &format!("web-{n}"), &[AgentRole::Node], false).await.unwrap();
    }
    let even = |instance: &Instance| instance.host_id.uuid().as_u128().is_multiple_of(2);
    let (first, more) = fleet.page(None, 3, even);
    let ids = |page: &[Arc<Instance>]| page.iter().map(|i| i.host_id.uuid().as_u128()).collect::<Vec<_>>();
    assert_eq!((ids(&first), more), (vec![2, 4, 6], true));
    let (rest, more) = fleet.page(Some(host(6)), 3, even);
    assert_eq!((ids(&rest), more), (vec![8, 10], false));
}
