//! What is stored and sent, and the rules that make it valid. No I/O, no clock, no async: a value of
//! one of these types is right by construction, whichever process holds it.

mod channel;
mod data_dir;
mod fault;
mod resource;
mod version;

pub use channel::{Channel, ChannelName};
pub use data_dir::DataDir;
pub use fault::{Fault, Faults};
pub use resource::{Document, Kind, Metadata, Resource};
pub use version::Version;
