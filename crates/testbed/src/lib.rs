//! The real components that tests run against.

mod certificates;
mod etcd;
mod machine;
mod process;
mod proxy;
mod scratch;
mod sweep;
mod wait;

pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdBuilder, EtcdCluster};
pub use machine::Machine;
pub use process::Process;
pub use proxy::Proxy;
pub use rustix::process::Signal;
pub use scratch::directory;
pub use sweep::sweep;
pub use wait::eventually;
