//! The host updater: brings one agent on one Linux host to the version that the cluster wants, proves that it
//! works, and undoes it when it does not. It may be cut off at any moment: the old or the new version is
//! complete with its own database, and the next start finishes or undoes.

mod disk;
mod layout;
mod profile;

pub use disk::{Disk, FileKind, RealDisk, point_durably, write_durably};
pub use layout::Layout;
pub use profile::{Profile, ProfileError};
