//! Implementations of the `Service` seam: systemd, and where there is no systemd Refit's own supervisor or none at all,
//! whichever is there when it is asked.

mod detected;
mod journal_lines;
mod no_service;
mod supervised;
mod systemd;

pub use detected::DetectedService;
pub use no_service::NoService;
pub(crate) use supervised::Supervised;
pub use systemd::Systemd;
