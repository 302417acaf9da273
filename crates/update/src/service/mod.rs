//! Who starts and stops the agent: systemd, or nobody in an image.

mod systemd;

pub use systemd::Systemd;
