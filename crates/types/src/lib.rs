//! What is stored and sent, and the rules that make it valid. No I/O, no clock, no async: a value of
//! one of these types is right by construction, whichever process holds it.

mod config_error;
mod data_dir;
mod feature_level;
mod host;
mod host_record;
mod humanize;
mod kinds;
mod labels;
mod platform;
mod resource;
mod resource_kind;
mod revision;
mod rollout;
mod rollout_records;
mod stored_word;
mod text_enum;
mod unknown_fields;
mod updater_status;
mod validation;
mod version;

pub use config_error::ConfigError;
pub use data_dir::DataDir;
pub use feature_level::FeatureLevel;
pub use host::{AgentRole, Edition, HostId, NotAHostId, UpgraderKind};
pub use host_record::{HostRecord, PastUpdate, Report, RotationMark, Session};
pub use humanize::{counted, in_words};
pub use kinds::*;
pub use labels::{BadLabel, Labels};
pub use platform::{Build, CHECKSUM_SUFFIX, HOST_OS, NotAPlatform, Platform, host_arch};
pub use resource::{Document, Metadata};
pub use resource_kind::{
    Cell, Column, Detail, Editors, Header, KindInfo, NameRule, Naming, ResourceKind, UnknownKind,
};
pub use revision::Revision;
pub use rollout::{
    AutoUpdate, AutoupdateVersion, ClusterMaintenanceConfig, Day, Days, Expression, Group, GroupName, Groups,
    HostLimit, Immediate, MAX_GROUPS, NotAHostLimit, NotAPercentage, NotATimeZone, NotAnExpression, Percent,
    PolicySchedule, Schedule, Selector, Span, TimeZoneName, Unanswered, WeeklyWindow,
};
pub use rollout_records::{
    GroupRecord, GroupState, Halt, HaltCause, MarkedDone, NewcomerSlots, NewcomerStart, Outcome,
    RolloutRecord, Suspension, Upgrade,
};
pub use stored_word::StoredWord;
pub use text_enum::UnknownWord;
pub use unknown_fields::{Collector, UnknownFields};
pub use updater_status::{
    BootMoment, FailedAgent, UpdateFailure, UpdateObstacle, UpdateTarget, UpdaterStatus,
};
pub use validation::{ValidationError, ValidationErrors};
pub use version::Version;
