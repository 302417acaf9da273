//! What is stored and sent, and the rules that make it valid. No I/O, no clock, no async: a value of
//! one of these types is right by construction, whichever process holds it.

mod channel;
mod data_dir;
mod fault;
mod feature_level;
mod host;
mod instance;
mod labels;
mod resource;
mod revision;
mod rollout;
mod stored_word;
mod unknown_fields;
mod updater_status;
mod upgrade;
mod version;
mod word;
mod words;

pub use channel::{Channel, ChannelName};
pub use data_dir::DataDir;
pub use fault::{Fault, Faults};
pub use feature_level::FeatureLevel;
pub use host::{AgentRole, Edition, HostId, NotAHostId, UpgraderKind};
pub use instance::{Instance, PastUpdate, Report, RotationMark, Session};
pub use labels::{BadLabel, Labels};
pub use resource::{Document, Kind, Metadata, Resource};
pub use revision::Revision;
pub use rollout::{
    AutoUpdate, AutoupdateVersion, ClusterMaintenanceConfig, Day, Days, Expression, Group, GroupName, Groups,
    Immediate, MAX_GROUPS, NotAPercentage, NotATimeZone, NotAnExpression, Percent, PolicySchedule, Schedule,
    Selector, Span, TimeZoneName, Unanswered, WeeklyWindow,
};
pub use stored_word::StoredWord;
pub use unknown_fields::{Collector, UnknownFields};
pub use updater_status::{UpdateFailure, UpdaterStatus};
pub use upgrade::{GroupRecord, GroupState, Halt, HaltCause, Outcome, RolloutRecord, Upgrade};
pub use version::Version;
pub use word::UnknownWord;
pub use words::{counted, in_words};
