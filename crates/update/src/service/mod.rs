//! Implementations of the `Service` seam: systemd, Refit's own supervisor, and none at all in an image.

mod no_service;
mod supervised;
mod systemd;

pub use no_service::NoService;
pub use supervised::Supervised;
pub use systemd::Systemd;
