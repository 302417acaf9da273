//! What operators say of rollouts: which version, for whom, and when.

mod chains;
mod config;
mod config_document;
mod label_test;
mod percent;
mod selector;
mod shape;
mod version;
mod window;

pub use config::{
    AutoUpdate, ClusterMaintenanceConfig, Group, GroupName, Groups, Immediate, MAX_GROUPS, PolicySchedule,
};
pub use percent::{NotAPercentage, Percent};
pub use selector::{Expression, NotAnExpression, Selector, Unanswered};
pub use version::{AutoupdateVersion, Schedule};
pub use window::{Day, Days, NotATimeZone, Span, TimeZoneName, WeeklyWindow};
