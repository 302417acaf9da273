//! The real components that tests run against: etcd, servers, booted machines, proxies and certificates. For tests only.

mod cache;
mod certificates;
mod etcd;
mod intercepted_backend;
mod machine;
mod newer_release;
mod process;
mod proxy;
mod published;
mod ran;
mod scratch;
mod server;
mod sweep;
mod wait;

pub use cache::cache_directory;
pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdBuilder, EtcdCluster};
pub use intercepted_backend::{Intercept, InterceptedBackend};
pub use machine::Machine;
pub use newer_release::{lost_newer_fields, with_newer_fields};
pub use process::Process;
pub use proxy::Proxy;
pub use published::publish;
pub use ran::{Ran, bounded, forget_settings};
pub use rustix::process::Signal;
pub use scratch::{directory, link_files};
pub use server::{Invitation, Server};
pub use sweep::sweep;
pub use wait::{eventually, far_hour, until_seen};
