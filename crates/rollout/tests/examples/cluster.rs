//! The cluster of the examples, and short helpers to move and inspect it.

use refit_types::{
    AutoUpdate, ClusterMaintenanceConfig, Days, Group, GroupRecord, Groups, HostId, HostLimit, Immediate,
    PolicySchedule, Selector, TimeZoneName, Upgrade, WeeklyWindow,
};
use uuid::Uuid;

use crate::world::{self, HostStep, OperatorStep, Step, World};

/// A day before the first window of all groups, which are open from midnight to four.
const NOON: &str = "2026-07-01T12:00:00Z";
pub const UNTIL_MIDNIGHT: u32 = 12 * 3600;
pub const HOUR: u32 = 3600;

pub fn every_night() -> WeeklyWindow {
    WeeklyWindow { days: Days::ALL, start_hour: 0, window_hours: 4, timezone: TimeZoneName::utc() }
}

/// A group with the defaults, for hosts of the role of its number.
pub fn group(number: u8) -> Group {
    Group {
        name: format!("g{number}").parse().unwrap(),
        agents: Selector {
            node_labels_expression: Some(world::expression(number)),
            instance_labels_expression: None,
        },
        window: every_night(),
        jitter_seconds: 0,
        max_in_flight: HostLimit::ALL,
        timeout_seconds: 60,
        failure_seconds: 0,
        max_failed_before_halt: HostLimit::ZERO,
        max_timeout_before_halt: HostLimit::percent(10).unwrap(),
        requires: Vec::new(),
        allow_empty: false,
    }
}

/// That many hosts of group 0, on the version before.
pub fn cluster(groups: Vec<Group>, hosts: u8) -> World {
    cluster_of(&[200], groups, hosts)
}

/// The same with several servers.
pub fn cluster_of(servers: &[u8], groups: Vec<Group>, hosts: u8) -> World {
    let schedule = PolicySchedule { window: every_night(), jitter_seconds: 0 };
    let config = ClusterMaintenanceConfig {
        description: String::new(),
        agent_auto_update: AutoUpdate {
            enabled: true,
            immediate: Immediate::default(),
            regular: schedule.clone(),
            critical: schedule,
        },
        agent_auto_update_groups: Groups { regular: groups, critical: Vec::new() },
    };
    let mut world = World::new(config, servers, NOON.parse().unwrap());
    for number in 0..hosts {
        join(&mut world, number, 0);
    }
    world
}

pub fn join(world: &mut World, number: u8, role: u8) {
    let id = HostId::new(Uuid::from_u128(u128::from(number) + 1));
    world.ids.push(id);
    host(world, number, HostStep::Join { role, version: 0 });
}

pub fn host(world: &mut World, number: u8, step: HostStep) {
    world.step(&Step::Host { host: number, step }).unwrap_or_else(|broken| panic!("{broken}"));
}

pub fn operator(world: &mut World, step: OperatorStep) {
    world.step(&Step::Operator(step)).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Time passes, and servers do what is due.
pub fn pass(world: &mut World, seconds: u32) {
    for step in [Step::Pass { seconds }, Step::Settle] {
        world.step(&step).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

pub fn record(world: &World, group: u8) -> GroupRecord {
    world.store.records.group(&format!("g{group}"))
}

pub fn upgrade_of(world: &World, number: usize) -> Upgrade {
    *world.store.records.host_record(world.ids[number]).unwrap().upgrade.clone().unwrap()
}

pub fn is_told(world: &World, number: usize) -> bool {
    world.servers[0].engine.view().answer(Some(world.ids[number]), world.now).auto_update
}

pub fn blocked_by(world: &World, group: usize) -> Option<String> {
    let engine = &world.servers[0].engine;
    engine.view().blocked_by(group, world.now).map(|blocked_by| blocked_by.in_words(world.now))
}

pub fn is_halted(world: &World, group: u8) -> bool {
    record(world, group).is_halted()
}
