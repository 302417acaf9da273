//! Who starts and stops the agent: systemd, a supervisor of our own, or nobody in an image.

mod no_service;
mod supervised;
mod systemd;

pub use no_service::NoService;
pub use supervised::Supervised;
pub use systemd::Systemd;
