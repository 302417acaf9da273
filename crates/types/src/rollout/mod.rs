//! What operators say of rollouts: which version, for whom, and when.

mod config;
mod config_document;
mod expression_guard;
mod host_limit;
mod label_expression;
mod percent;
mod requires_graph;
mod selector;
mod version;
mod window;

pub use config::{
    AutoUpdate, ClusterMaintenanceConfig, Group, GroupName, Groups, Immediate, MAX_GROUPS, PolicySchedule,
};
pub(crate) use host_limit::EXPECTED as EXPECTED_LIMIT;
pub use host_limit::{HostLimit, NotAHostLimit};
pub use percent::{NotAPercentage, Percent};
pub use selector::{Expression, NotAnExpression, Selector, Unanswered};
pub use version::{AutoupdateVersion, Schedule};
pub use window::{Day, Days, NotATimeZone, Span, TimeZoneName, WeeklyWindow};
