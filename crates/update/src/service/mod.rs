//! Who starts and stops the agent: systemd, or nobody in an image.

mod absent;
mod systemd;

pub use absent::NoService;
pub use systemd::Systemd;
