//! What should happen next in a rollout. Events and a time go in, decisions come out: no clock, no disk, no
//! network, and no scan of the fleet for one event.

mod answer;
mod cohort;
mod engine;
mod facts;
mod hand;
mod host_map;
mod mark;
mod micros;
mod plan;
mod preview;
mod simulate;
mod table;
mod waiting;

pub use answer::Answer;
pub use cohort::Cohort;
pub use engine::{Decision, Engine, InProgress, Marked, Progress, RolloutView};
pub use facts::{Ended, HostFacts, has_arrived, held_by};
pub use hand::{removed, run_by_hand};
pub use host_map::HostMap;
pub use mark::{End, Mark, marked};
pub use micros::{EXPIRES_AFTER, POLLING_PERIOD};
pub use plan::{Plan, fingerprint};
pub use preview::{AbsentLabel, Blocker, GroupPreview, Preview, preview};
pub use simulate::{
    Behaviour, GroupTimeline, Impossible, MAX_DAYS, MAX_HOSTS, NotAShare, Outcomes, Sample, Share,
    Simulation, Timeline,
};
pub use waiting::Waiting;
