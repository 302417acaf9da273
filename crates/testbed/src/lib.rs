//! The real components that tests run against.

mod certificates;
mod etcd;
mod process;
mod scratch;
mod wait;

pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdBuilder, EtcdCluster};
pub use wait::eventually;
