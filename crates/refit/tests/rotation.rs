//! The authorities are replaced under a live fleet, with agents and servers crashing in every phase: who
//! follows is never cut off, and what the old authority signed is worth nothing in the end.

#![allow(clippy::unwrap_used)]

#[path = "rotation/cluster.rs"]
mod cluster;

use cluster::{Cluster, TIMEOUT};
use jiff::{SignedDuration, Timestamp};
use refit_identity::{AgentState, IdentitySlot};
use refit_testbed::{eventually, sweep};
use refit_types::AgentRole;

const FLEET: usize = 50;
const FORWARD: [&str; 4] = ["init", "update_clients", "update_servers", "standby"];

/// Goes on although a person's identity lags, once no host does.
async fn go_on(cluster: &mut Cluster, round: usize, phase: &str) {
    cluster.servers[round % 2].force_to(phase).json();
    cluster.administrators_work();
    cluster.crash_some(round).await;
    cluster.administrators_work();
    cluster.hosts_follow(phase).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_fleet_follows_to_the_new_authority_through_crashes() {
    let mut cluster = Cluster::start("forward", FLEET).await;
    let old = cluster.only_pin();
    let early = cluster.sign("early");
    cluster.works(&early);
    cluster.agents[0].stop().await;
    let mut copy = cluster.agents[0].copied_to(cluster.folder.path().join("copy"));
    cluster.agents[0].start(&[]);

    for (round, phase) in FORWARD.into_iter().enumerate() {
        if round >= 2 {
            let said = cluster.servers[round % 2].go_to(phase).bad(1);
            assert!(said.contains("user early") && said.contains("--force"), "{said}");
        }
        go_on(&mut cluster, round, phase).await;
    }
    cluster.all_connected("standby").await;
    let new = cluster.only_pin();
    assert_ne!(new, old);
    cluster.refuse(&early);
    let late = cluster.sign("late");
    cluster.works(&late);

    cluster.every_agent_trusts_only(&new).await;
    copy.start(&[]);
    let said = copy.ends().await;
    assert!(said.contains("does not accept it") && said.contains("proc/sqlite.db"), "{said}");
    // Nor is it of use to somebody who knows the new authority.
    let after = cluster.agents[0].stored(AgentRole::Node).await;
    let after = after.active().unwrap();
    let before = copy.stored(AgentRole::Node).await.active().unwrap().clone();
    assert_ne!(before.ssh_authorities(), after.ssh_authorities());
    let (tls, ssh) = (after.authorities().to_vec(), after.ssh_authorities().to_vec());
    let trusting = before.with_authorities(IdentitySlot::Current.as_str(), tls, ssh).unwrap();
    copy.store().store(AgentRole::Node, IdentitySlot::Current, &trusting).await.unwrap();
    copy.start(&[]);
    let said = copy.ends().await;
    assert!(said.contains("does not accept it") && !said.contains("cannot be reached"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_fleet_goes_back_to_the_old_authority_through_crashes() {
    let mut cluster = Cluster::start("back", FLEET).await;
    let old = cluster.only_pin();
    let early = cluster.sign("early");
    let all = ["update_clients", "init", "update_servers"];
    let mut round = 0;
    for last in &all[..sweep(1, all.len())] {
        let until = FORWARD.iter().position(|phase| phase == last).unwrap();
        for phase in &FORWARD[..=until] {
            go_on(&mut cluster, round, phase).await;
            round += 1;
        }
        let during = cluster.sign(&format!("during-{last}"));
        cluster.works(&during);
        // It does not know the authority whose certificates servers show from then on.
        if *last != "update_servers" {
            cluster.works(&early);
        }
        for phase in ["rollback", "standby"] {
            cluster.servers[round % 2].go_to(phase).json();
            cluster.administrators_work();
            cluster.crash_some(round).await;
            cluster.hosts_follow(phase).await;
            round += 1;
        }
        cluster.all_connected("standby").await;
        assert_eq!(cluster.only_pin(), old, "after the rollback from {last}");
        cluster.works(&early);
        match *last {
            "init" => cluster.works(&during),
            _ => cluster.refuse(&during),
        }
    }
    cluster.every_agent_trusts_only(&old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_away_stops_the_rotation_unless_forced_and_can_join_again() {
    let mut cluster = Cluster::start("away", 4).await;
    let old = Some(cluster.only_pin().parse().unwrap());
    cluster.agents[2].stop().await;
    for (n, phase) in FORWARD.into_iter().enumerate() {
        if n == 1 {
            cluster.agents[3].stop().await;
        }
        let server = &cluster.servers[n % 2];
        if n > 0 {
            let said = server.go_to(phase).bad(1);
            let told =
                said.contains("would be cut off") && said.contains("host ") && said.contains("--force");
            assert!(told && !said.contains("user"), "{said}");
            let lagging = server.rotation()["lagging"].clone();
            let missed = lagging.as_array().unwrap().iter().find(|who| who["id"] == cluster.agents[2].id());
            let missed = missed.unwrap_or_else(|| panic!("{lagging}"));
            assert!(said.contains(missed["name"].as_str().unwrap()), "{said}");
            assert!(missed["reason"].as_str().unwrap().contains("away"), "{missed}");
        }
        server.force_to(phase).json();
        for agent in &cluster.agents[..2] {
            let there = async || {
                let nodes = cluster.servers[n % 2].ctl(&["nodes", "ls", "--search", &agent.id()]).json();
                nodes[0]["rotation_phase"] == phase && nodes[0]["connected"] == true
            };
            eventually("those who are there follow", TIMEOUT, there).await;
            // Both authorities are trusted up to the last phase.
            let tells =
                async || agent.issuer().await.is_some_and(|pin| (Some(pin) == old) == (phase == "init"));
            eventually("they tell who issued their identity", TIMEOUT, tells).await;
        }
        if n == 0 {
            let third = cluster.agents[3].id();
            let there = async || {
                let nodes = cluster.servers[0].ctl(&["nodes", "ls", "--search", &third]).json();
                nodes[0]["rotation_phase"] == phase
            };
            eventually("the one that leaves later follows", TIMEOUT, there).await;
        }
    }
    let invitation = cluster.servers[1].invitation();
    for n in [2, 3] {
        let agent = &mut cluster.agents[n];
        agent.start(&[]);
        let said = agent.ends().await;
        let store = agent.data.agent_store();
        assert!(said.contains(store.to_str().unwrap()) && said.contains("join again"), "{said}");
        cluster.servers[0].ctl(&["nodes", "rm", &agent.id()]).json();
        std::fs::remove_file(store).unwrap();
        agent.start(&invitation);
    }
    cluster.all_connected("standby").await;
    let pin = cluster.only_pin();
    cluster.every_agent_trusts_only(&pin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_automatic_rotation_ends_by_itself_and_waits_for_who_is_away() {
    let mut cluster = Cluster::start("automatic", 5).await;
    let old = cluster.only_pin();
    let begin =
        |cluster: &Cluster| cluster.servers[0].ctl(&["auth", "rotate", "--grace-period", "9s"]).json();
    begin(&cluster);
    cluster.hosts_follow("standby").await;
    cluster.all_connected("standby").await;
    let new = cluster.only_pin();
    assert_ne!(new, old);

    cluster.agents[0].stop().await;
    let begun = begin(&cluster);
    let due: Timestamp = begun["next_phase_at"].as_str().unwrap().parse().unwrap();
    // Every server has looked several times by then.
    let passed = async || Timestamp::now() > due + SignedDuration::from_secs(4);
    eventually("the time of the next phase passes", TIMEOUT, passed).await;
    for server in &cluster.servers {
        let rotation = server.rotation();
        let lagging = rotation["lagging"].as_array().unwrap();
        assert_eq!((rotation["phase"].as_str(), lagging.len()), (Some("init"), 1), "{rotation}");
        assert_eq!(lagging[0]["id"], cluster.agents[0].id());
    }
    cluster.agents[0].start(&[]);
    cluster.hosts_follow("standby").await;
    cluster.all_connected("standby").await;
    let newest = cluster.only_pin();
    assert_ne!(newest, new);
    cluster.every_agent_trusts_only(&newest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_asked_at_once_one_goes_on() {
    let cluster = Cluster::start("race", 2).await;
    for _ in 0..sweep(1, 10) {
        for phase in FORWARD {
            let (one, two) = std::thread::scope(|scope| {
                let asked = cluster.servers.iter().map(|server| scope.spawn(move || server.go_to(phase)));
                let mut asked = asked.collect::<Vec<_>>().into_iter().map(|asked| asked.join().unwrap());
                (asked.next().unwrap(), asked.next().unwrap())
            });
            let (won, lost) = if one.code == Some(0) { (one, two) } else { (two, one) };
            let won = won.json();
            assert_eq!(won["phase"], phase);
            let said = lost.bad(1);
            assert!(said.contains("a rotation cannot go from") || said.contains("in the meantime"), "{said}");
            cluster.hosts_follow(phase).await;
            let shown: Vec<_> = cluster.servers.iter().map(|server| server.rotation()).collect();
            assert_eq!(shown[0], shown[1]);
            assert_eq!((&shown[0]["id"], &shown[0]["phase_since"]), (&won["id"], &won["phase_since"]));
        }
    }
    cluster.all_connected("standby").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_misses_the_end_or_a_rollback_comes_back_by_itself() {
    let mut cluster = Cluster::start("missed", 2).await;
    let old = cluster.only_pin();
    for (until, end) in [("update_clients", &["rollback", "standby"][..]), ("update_servers", &["standby"])] {
        let until = FORWARD.iter().position(|phase| *phase == until).unwrap();
        for phase in &FORWARD[..=until] {
            cluster.servers[0].go_to(phase).json();
            cluster.hosts_follow(phase).await;
        }
        cluster.agents[0].stop().await;
        for phase in end {
            cluster.servers[1].force_to(phase).json();
        }
        cluster.agents[0].start(&[]);
        cluster.all_connected("standby").await;
        assert_eq!(cluster.only_pin() == old, end.len() == 2);
    }
    let new = cluster.only_pin();
    cluster.every_agent_trusts_only(&new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_stayed_behind_is_brought_to_the_others() {
    let mut cluster = Cluster::start("roles", 1).await;
    cluster.servers[0].go_to("init").json();
    cluster.hosts_follow("init").await;
    let agent = &mut cluster.agents[0];
    agent.stop().await;
    // As if it had been killed after its first role followed.
    let (store, last) = (agent.store(), agent.roles().max().unwrap());
    assert_ne!(agent.roles().min(), Some(last));
    let followed = store.load(last).await.unwrap().active().unwrap().clone();
    let (tls, ssh) = (followed.authorities()[..1].to_vec(), followed.ssh_authorities()[..1].to_vec());
    let identity = followed.with_authorities(IdentitySlot::Current.as_str(), tls, ssh).unwrap();
    store.store(last, IdentitySlot::Current, &identity).await.unwrap();
    store.store_state(last, &AgentState::default()).await.unwrap();
    drop(store);
    let followed = agent.log().matches("followed the rotation").count();
    agent.start(&[]);
    let again = async || cluster.agents[0].log().matches("followed the rotation").count() > followed;
    eventually("it follows with the role that stayed behind", TIMEOUT, again).await;
    cluster.agents[0].stop().await;
    let stored = cluster.agents[0].stored(last).await;
    assert_eq!(stored.state.phase.as_str(), "init");
    assert_eq!(stored.active().unwrap().authorities().len(), 2);
}
