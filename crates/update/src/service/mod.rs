//! Who starts and stops the agent: systemd, a supervisor of our own, or nobody in an image.

mod absent;
mod supervised;
mod systemd;

pub use absent::NoService;
pub use supervised::Supervised;
pub use systemd::Systemd;
