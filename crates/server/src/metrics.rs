//! The Prometheus metrics of a server. Other modules call the methods; only the diag port reads the result.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use axum::http::StatusCode;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use refit_migrations::Outcome;

/// The metrics of this server. No label has a value for each host.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    migrations: Family<MigrationLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    find: Family<StatusLabels, Counter>,
    /// Handles of the two most frequent statuses, so that counting them takes no lock.
    found: Counter,
    unchanged: Counter,
    artifacts: Family<StatusLabels, Counter>,
    pub(crate) connections: Gauge<i64, AtomicI64>,
    rollout_writes: Family<RolloutLabels, Counter>,
    rollout_conflicts: Counter,
    unreadable: Family<RecordLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RolloutLabels {
    /// `mark` for a host's record, `arrival` for one that was due for its heartbeat anyway, `group`.
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecordLabels {
    /// `host` or `group`.
    record: &'static str,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
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
        let find = Family::<StatusLabels, Counter>::default();
        registry.register("find", "Answers to find by HTTP status; 429 is who asked too often", find.clone());
        let of = |status: StatusCode| find.get_or_create(&StatusLabels { status: status.as_u16() }).clone();
        let (found, unchanged) = (of(StatusCode::OK), of(StatusCode::NOT_MODIFIED));
        let artifacts = Family::default();
        registry.register("artifacts", "Answers for archives by HTTP status", artifacts.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections on the TLS port", connections.clone());
        let rollout_writes = Family::default();
        registry.register("rollout_writes", "Records stored by the rollout", rollout_writes.clone());
        let rollout_conflicts = Counter::default();
        registry.register(
            "rollout_conflicts",
            "Decisions that another server was quicker with",
            rollout_conflicts.clone(),
        );
        let unreadable = Family::default();
        registry.register(
            "unreadable_records",
            "Records that this server cannot read, and whose groups it stops",
            unreadable.clone(),
        );
        Arc::new(Self {
            registry,
            migrations,
            requests,
            find,
            found,
            unchanged,
            artifacts,
            connections,
            rollout_writes,
            rollout_conflicts,
            unreadable,
        })
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

    /// One transaction of a rollout: a group's record, and those of so many hosts.
    pub(crate) fn rollout_writes(&self, marks: usize, arrivals: usize) {
        for (what, count) in [("mark", marks), ("arrival", arrivals), ("group", 1)] {
            let labels = RolloutLabels { what };
            self.rollout_writes.get_or_create(&labels).inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn rollout_conflict(&self) {
        self.rollout_conflicts.inc();
    }

    pub(crate) fn unreadable_hosts(&self, count: usize) {
        self.unreadable_records("host", count);
    }

    pub(crate) fn unreadable_groups(&self, count: usize) {
        self.unreadable_records("group", count);
    }

    fn unreadable_records(&self, record: &'static str, count: usize) {
        let gauge = self.unreadable.get_or_create(&RecordLabels { record });
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn find(&self, status: StatusCode) {
        match status {
            StatusCode::OK => self.found.inc(),
            StatusCode::NOT_MODIFIED => self.unchanged.inc(),
            other => self.find.get_or_create(&StatusLabels { status: other.as_u16() }).inc(),
        };
    }

    pub(crate) fn artifact(&self, status: StatusCode) {
        self.artifacts.get_or_create(&StatusLabels { status: status.as_u16() }).inc();
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
