//! Three servers on one etcd roll a version out to a fleet in which some hosts fail, hang and die: the limits
//! hold at every moment, seen from outside, whatever becomes of the servers.

#![allow(clippy::unwrap_used)]

#[path = "rollout/cluster.rs"]
mod cluster;

use cluster::{Cluster, Habits, TIMEOUT};
use refit_loadgen::Conduct;
use refit_testbed::{eventually, sweep};

/// A host that was told and does nothing for longer than the group waits.
const HANGS: Conduct = Conduct::Hangs(std::time::Duration::from_secs(60));

/// What each host does: two in a hundred fail, one hangs, one dies.
fn conduct(n: usize) -> Conduct {
    match n % 100 {
        13 | 57 => Conduct::RollsBack,
        71 => HANGS,
        89 => Conduct::Dies,
        _ => Conduct::Upgrades,
    }
}

fn hosts() -> usize {
    sweep(200, 2000)
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_while_hosts_fail_hang_and_die() {
    let cluster = Cluster::start("calm", hosts(), conduct).await;
    cluster.choose("15.1.1");
    cluster.until_done().await;
    cluster.assert_outcomes(conduct);
    cluster.assert_writes(2.1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_while_the_version_changes() {
    // Every other host asks once more before it switches, and calls off what is not wanted any more.
    let habits = |n: usize| Habits {
        conduct: Conduct::Upgrades,
        takes: std::time::Duration::from_millis(3000 + (n as u64 * 37) % 1500),
        confirms: n.is_multiple_of(2),
        asks_every: None,
    };
    let cluster = Cluster::start_with("changing", hosts() / 2, habits).await;
    cluster.choose("15.1.1");
    let mut under_way = Vec::new();
    for version in ["15.1.2", "15.1.1", "15.1.3"] {
        under_way.push(cluster.choose_in_the_middle(version).await);
        cluster.look();
    }
    println!("hosts that were under way when another version was chosen: {under_way:?}");
    cluster.until_done().await;
    cluster.assert_everyone_ended();
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_while_servers_die_and_lose_their_store() {
    let mut cluster = Cluster::start("troubled", hosts(), conduct).await;
    cluster.choose("15.1.1");
    eventually("the rollout is under way", TIMEOUT, async || cluster.arrived() > hosts() / 20).await;
    cluster.cut_off(1);
    cluster.kill(2);
    eventually("it goes on without them", TIMEOUT, async || cluster.arrived() > hosts() / 3).await;
    cluster.heal(1);
    cluster.until_done().await;
    cluster.assert_everyone_ended();
}
