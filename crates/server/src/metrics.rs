use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use refit_migrations::Outcome;

/// What this server counts. Never a label for each host.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    migrations: Family<MigrationLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    pub(crate) connections: Gauge<i64, AtomicI64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MigrationLabels {
    number: u32,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    code: i32,
}

impl Metrics {
    pub(crate) fn new(version: &str, store: &str) -> Arc<Self> {
        let mut registry = Registry::with_prefix("refit");
        let store = store.split_whitespace().next().unwrap_or_default().to_owned();
        let build = Info::new(vec![("version", version.to_owned()), ("store", store)]);
        registry.register("build", "The version that runs, and its kind of store", build);
        let migrations = Family::default();
        registry.register(
            "migrations",
            "Migrations by number and outcome: 1 where it stands",
            migrations.clone(),
        );
        let requests = Family::default();
        registry.register("requests", "gRPC calls by method and status code", requests.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections on the TLS port", connections.clone());
        Arc::new(Self { registry, migrations, requests, connections })
    }

    pub(crate) fn migration(&self, number: u32, now: Outcome) {
        for outcome in Outcome::ALL {
            let labels = MigrationLabels { number, outcome: outcome.name() };
            self.migrations.get_or_create(&labels).set(i64::from(outcome == now));
        }
    }

    pub(crate) fn request(&self, method: &'static str, code: i32) {
        self.requests.get_or_create(&RequestLabels { method, code }).inc();
    }

    /// Everything, in the text form that Prometheus reads.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        match text::encode(&mut out, &self.registry) {
            Ok(()) => out,
            Err(_) => String::new(),
        }
    }
}
