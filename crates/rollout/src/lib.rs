//! The rollout engine: decides what happens next. Events and a time go in, decisions come out. It has no clock, no disk
//! and no network, and does not scan the fleet for one event.

mod answer;
mod blocked_by;
mod cohort;
mod engine;
mod facts;
mod good_version;
mod host_map;
mod host_transition;
mod micros;
mod operator_actions;
mod plan;
mod preview;
mod simulate;
mod table;

pub use answer::Answer;
pub use blocked_by::BlockedBy;
pub use cohort::Cohort;
pub use engine::{Decision, Engine, InProgress, PlannedTransition, Progress, RolloutView};
pub use facts::{HostFacts, HostOutcome, has_arrived, held_by};
pub use good_version::{NamedVersion, Stopped, Ungrouped, has_ended_well};
pub use host_map::HostMap;
pub use host_transition::{AttemptEnd, HostTransition, apply_transition};
pub use micros::{EXPIRES_AFTER, POLLING_PERIOD, SETTLES_WITHIN};
pub use operator_actions::{mark_done, removed, run_group};
pub use plan::{Plan, fingerprint};
pub use preview::{
    AbsentLabel, Blocker, GroupPhase, GroupPreview, GroupStanding, Preview, Standing, preview,
};
pub use simulate::{
    Behaviour, GroupTimeline, Impossible, MAX_DAYS, MAX_HOSTS, NotAShare, Outcomes, Sample, Share,
    Simulation, Timeline,
};
