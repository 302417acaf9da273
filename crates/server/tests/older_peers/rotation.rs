//! An agent of 0.1 goes through every phase of a rotation, which an administrator moves with a `refitctl` of 0.1.

use refit_testbed::until_seen;
use tonic::Code;

use crate::old_agent::OldAgent;
use crate::old_ctl::OldCtl;
use crate::world::{SOON, World};

/// Forward to a new authority, and back from another one.
const PHASES: [&str; 7] =
    ["init", "update_clients", "update_servers", "standby", "init", "rollback", "standby"];

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_0_1_follows_every_phase() {
    let world = World::start(1).await;
    let mut agent = OldAgent::join(&world.servers[0], "staging").await;
    agent.until(|reply| reply.rotation.as_ref().is_some_and(|rotation| rotation.phase == "standby")).await;
    let before = OldCtl::of(&world).await;
    assert_eq!(before.status().await.rotation_phase, "standby");
    let first = before.rotation().await.ca_pins;
    let refused = before.go_to("revoke").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    for phase in PHASES {
        let moved = OldCtl::of(&world).await.go_to(phase).await.unwrap();
        assert_eq!((moved.phase.as_str(), moved.mode.as_str()), (phase, "manual"));
        let id = moved.id;
        if phase != "standby" {
            let lagging = &moved.lagging[0];
            assert_eq!((lagging.kind.as_str(), lagging.name.as_str()), ("host", "old"), "{phase}");
        }
        let told = agent.until(|reply| reply.rotation.as_ref().is_some_and(|at| at.phase == phase)).await;
        assert_eq!(told.rotation.unwrap().id, id);
        agent.follow().await;

        let ctl = OldCtl::of(&world).await;
        until_seen("nobody lags", SOON, || ctl.rotation(), |rotation| rotation.lagging.is_empty()).await;
        let reached = until_seen(
            "the host is there",
            SOON,
            || async { ctl.nodes().await.remove(0) },
            |node| node.rotation_phase == phase,
        );
        assert_eq!(reached.await.host_id, agent.host.to_string());
        assert_eq!(ctl.status().await.rotation_phase, phase);
    }
    let last = OldCtl::of(&world).await.rotation().await.ca_pins;
    assert_eq!(last.len(), 1);
    assert_ne!(last, first, "the authority is another one");
    world.shut_down().await;
}
