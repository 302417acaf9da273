//! A cluster with servers that share a store, and hosts that a test moves by hand. Most hosts are heard by a
//! server that is none: the test writes their records as that server would.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use refit_authority::StaticToken;
use refit_backend::{
    Backend, EtcdAddress, EtcdBackend, Item, Key, KeyRange, MAX_PAGE_ITEMS, Revision, Transaction,
};
use refit_identity::Role;
use refit_loadgen::{FleetOptions, Joined, SimulatedFleet};
use refit_proto::events::v1::event_service_client::EventServiceClient;
use refit_proto::events::v1::{Event, ListEventsRequest};
use refit_proto::nodes::v1::ListNodesRequest;
use refit_proto::nodes::v1::node_service_client::NodeServiceClient;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::resources::v1::{Resource, UpsertResourceRequest};
use refit_proto::rollouts::v1 as wire;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_server::{Features, Server, Settings};
use refit_testbed::eventually;
use refit_types::{
    AgentRole, Edition, FailedAgent, GroupRecord, HostId, HostRecord, Report, RotationMark, Session,
    UpdateFailure, UpdaterStatus, UpgraderKind,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Status;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::cluster::{HOUR, authority_in, connect, empty_store, settings, start, user};

pub const OLD: &str = "15.0.0";
pub const NEW: &str = "15.1.0";
pub const TOKEN: &str = "a-token-of-the-configuration";
/// Longer than anything here takes: a server lets half a minute pass before it says that a host was too slow.
pub const SOON: Duration = Duration::from_secs(60);
/// The server that hears the hosts which a test moves.
pub const FAR: &str = "far";

pub struct World {
    pub store: String,
    pub backend: EtcdBackend,
    pub servers: Vec<Server>,
    pub admin: Channel,
    /// The same, of every server.
    admins: Vec<Channel>,
    directories: Vec<TempDir>,
}

impl World {
    pub async fn start(servers: usize) -> Self {
        let store = empty_store().await;
        Self::at(&store, &store, servers).await
    }

    /// Servers that reach the store at `seen_as`.
    pub async fn at(store: &str, seen_as: &str, count: usize) -> Self {
        let (mut servers, mut directories) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let directory = tempfile::tempdir().unwrap();
            let settings = Settings { backend: Some(seen_as.into()), ..open_settings(directory.path()) };
            servers.push(start(settings).await.unwrap());
            directories.push(directory);
        }
        let admin = user(&authority_in(store).await, Role::Admin, HOUR, Timestamp::now());
        let mut admins = Vec::new();
        for server in &servers {
            admins.push(connect(server, Some(&admin)).await);
        }
        let admin = admins[0].clone();
        let backend = EtcdBackend::connect(&EtcdAddress::parse(store).unwrap()).await.unwrap();
        let record = json!({
            "id": FAR, "hostname": FAR, "version": "0.0.0", "address": "[::1]:1", "started_at": Timestamp::now(),
            "level": Features::current().level,
        });
        backend.put(&key(&format!("/servers/v1/default/{FAR}")), bytes(&record)).await.unwrap();
        Self { store: store.into(), backend, servers, admin, admins, directories }
    }

    pub async fn shut_down(self) {
        for server in self.servers {
            server.shut_down().await;
        }
    }

    /// Where the first server looks for archives.
    pub fn artifacts(&self) -> std::path::PathBuf {
        self.directories[0].path().join("artifacts")
    }

    /// Waits until the first server knows the platforms of so many hosts.
    pub async fn until_platforms_are_known(&self, hosts: usize) {
        eventually("the platforms are known", SOON, || async {
            let listed = self.nodes().list_nodes(ListNodesRequest::default()).await.unwrap().into_inner();
            listed.nodes.iter().filter(|node| !node.arch.is_empty()).count() == hosts
        })
        .await;
    }

    pub async fn set(&self, kind: &str, spec: Value) -> Result<(), Status> {
        set(&self.admin, kind, spec).await
    }

    pub async fn configure(&self, spec: Value) {
        self.set("cluster_maintenance_config", spec).await.unwrap();
    }

    pub async fn choose(&self, version: &str, schedule: &str) {
        let spec = json!({ "agent_version": version, "agent_version_schedule": schedule });
        self.set("autoupdate_version", spec).await.unwrap();
    }

    pub fn rollouts(&self) -> RolloutServiceClient<Channel> {
        RolloutServiceClient::new(self.admin.clone())
    }

    pub fn nodes(&self) -> NodeServiceClient<Channel> {
        NodeServiceClient::new(self.admin.clone())
    }

    pub async fn rollout(&self) -> wire::Rollout {
        rollout(&self.admin).await
    }

    pub async fn group(&self, name: &str) -> wire::Group {
        self.rollout().await.groups.into_iter().find(|group| group.name == name).unwrap_or_default()
    }

    /// Waits until the group is as wanted, and says how it was if it does not come to that.
    pub async fn until(&self, name: &str, wanted: impl Fn(&wire::Group) -> bool) -> wire::Group {
        until(&self.admin, name, wanted).await
    }

    pub async fn pause(&self, group: &str) -> Result<(), Status> {
        self.rollouts().pause(wire::PauseRequest { group: group.into() }).await.map(drop)
    }

    pub async fn resume(&self, group: &str) -> Result<(), Status> {
        self.rollouts().resume(wire::ResumeRequest { group: group.into() }).await.map(drop)
    }

    pub async fn run(&self, group: &str) -> Result<(), Status> {
        self.rollouts().run_group(wire::RunGroupRequest { group: group.into() }).await.map(drop)
    }

    pub async fn hosts_of(&self, group: &str, outcome: &str) -> Vec<wire::GroupHost> {
        let request = wire::ListGroupHostsRequest {
            group: group.into(),
            outcome: outcome.into(),
            page_size: 1000,
            ..Default::default()
        };
        self.rollouts().list_group_hosts(request).await.unwrap().into_inner().hosts
    }

    pub async fn events(&self) -> Vec<Event> {
        let mut client = EventServiceClient::new(self.admin.clone());
        let all = ListEventsRequest { page_size: 1000, ..Default::default() };
        client.list_events(all).await.unwrap().into_inner().events
    }

    /// Adds hosts `numbers` of an environment, heard by the server that is none, and waits until all servers know
    /// them.
    pub async fn add(&self, numbers: Range<u128>, environment: &str) {
        let puts: Vec<HostRecord> = numbers.clone().map(|n| host_record(n, environment)).collect();
        for batch in puts.chunks(80) {
            let put = |transaction: Transaction, host: &HostRecord| {
                transaction.put(&host_key(host.host_id), serde_json::to_vec(host).unwrap())
            };
            self.backend.transact(batch.iter().fold(Transaction::new(), put)).await.unwrap();
        }
        self.until_known(&numbers.map(host).collect::<Vec<_>>()).await;
    }

    /// Waits until all servers know what these hosts run.
    pub async fn until_known(&self, hosts: &[HostId]) {
        for admin in &self.admins {
            eventually("the hosts are known", SOON, || knows(admin, hosts)).await;
        }
    }

    pub async fn host_record(&self, host: HostId) -> HostRecord {
        self.stored(host).await.unwrap().0
    }

    async fn stored(&self, host: HostId) -> Option<(HostRecord, Revision)> {
        let item = self.backend.get(&host_key(host)).await.unwrap()?;
        Some((serde_json::from_slice(&item.value).unwrap(), item.revision))
    }

    /// Changes a host's record, as the server would that hears it.
    pub async fn change(&self, host: HostId, change: impl Fn(&mut HostRecord)) {
        loop {
            let (mut host_record, revision) = self.stored(host).await.unwrap();
            change(&mut host_record);
            let key = host_key(host);
            let transaction = Transaction::new().expect_revision(&key, revision);
            let value = serde_json::to_vec(&host_record).unwrap();
            if self.backend.transact(transaction.put(&key, value)).await.is_ok() {
                return;
            }
        }
    }

    /// The host reports that version.
    pub async fn arrives(&self, host: HostId, version: &str) {
        self.change(host, |host| host.report.as_mut().unwrap().version = version.parse().unwrap()).await;
    }

    /// The host's updater says that it undid the present attempt.
    pub async fn undoes(&self, host: HostId) {
        self.change(host, |host| {
            let failure = UpdateFailure {
                attempt: host.upgrade.as_ref().unwrap().attempt,
                version: NEW.parse().unwrap(),
                step: "health".into(),
                reason: "the agent ended (exit status 3)".into(),
                at: Timestamp::now(),
                agent: Some(Box::new(FailedAgent {
                    ended: Some("exit status 3".into()),
                    seen_dead_at: "2026-11-16T00:17:50Z".parse().ok(),
                    last_lines: vec!["first".into(), "<b>last</b>".into()],
                })),
            };
            updater(host).last_failure = Some(failure);
        })
        .await;
    }

    /// The host was told longer ago than anything may take.
    pub async fn takes_too_long(&self, host: HostId) {
        self.change(host, |host| {
            let upgrade = host.upgrade.as_mut().unwrap();
            upgrade.start_time = Some(upgrade.start_time.unwrap() - HOUR);
        })
        .await;
    }

    pub async fn host_records(&self) -> Vec<HostRecord> {
        let items = self.below("/instances/v1/default").await;
        items.iter().map(|item| serde_json::from_slice(&item.value).unwrap()).collect()
    }

    pub async fn records(&self) -> BTreeMap<String, GroupRecord> {
        let items = self.below("/rollouts/v1/default/groups").await;
        let name = |item: &Item| item.key.as_str().rsplit('/').next().unwrap().to_owned();
        items.iter().map(|item| (name(item), serde_json::from_slice(&item.value).unwrap())).collect()
    }

    async fn below(&self, prefix: &str) -> Vec<Item> {
        let page = self.backend.range(&KeyRange::below(&key(prefix)), MAX_PAGE_ITEMS).await.unwrap();
        assert!(!page.more);
        page.items
    }

    /// Hosts that have started and not ended, as they are stored, in the order of their UUIDs.
    pub async fn flying(&self, group: &str) -> Vec<HostId> {
        let epoch = self.rollout().await.epoch;
        let is_flying = |host: &&HostRecord| {
            host.upgrade.as_ref().is_some_and(|upgrade| {
                upgrade.epoch == epoch
                    && upgrade.group_name.as_str() == group
                    && upgrade.start_time.is_some()
                    && upgrade.outcome.is_none()
            })
        };
        self.host_records().await.iter().filter(is_flying).map(|host| host.host_id).collect()
    }

    /// Every host in flight has the version at once, until the group has ended.
    pub async fn fly(&self, group: &str, version: &str) {
        eventually(&format!("{group} ends"), SOON, || async {
            for host in self.flying(group).await {
                self.arrives(host, version).await;
            }
            self.group(group).await.state == "succeeded"
        })
        .await;
    }

    /// Hosts that have joined a server, with identities of their own.
    pub async fn joined(&self, count: usize) -> Vec<Joined> {
        joined(&self.servers[0], count).await
    }

    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.local_address().to_string()).collect()
    }

    /// A count of all servers.
    pub async fn metric(&self, line: &str) -> u64 {
        let mut sum = 0;
        for server in &self.servers {
            let text = get_plain(&server.diag_address.to_string(), "/metrics").await;
            let found = text.lines().find_map(|shown| shown.strip_prefix(line)?.trim().parse::<u64>().ok());
            sum += found.unwrap_or(0);
        }
        sum
    }
}

async fn knows(admin: &Channel, hosts: &[HostId]) -> bool {
    let all = ListNodesRequest { page_size: 1000, ..Default::default() };
    let nodes = NodeServiceClient::new(admin.clone()).list_nodes(all).await.unwrap().into_inner().nodes;
    let heard = nodes.iter().filter(|node| !node.version.is_empty());
    let heard: BTreeSet<HostId> = heard.map(|node| node.host_id.parse().unwrap()).collect();
    hosts.iter().all(|host| heard.contains(host))
}

pub fn open_settings(directory: &std::path::Path) -> Settings {
    Settings {
        static_tokens: Some(vec![StaticToken { token: TOKEN.into(), roles: vec![AgentRole::Node] }]),
        find_requests_per_second: Some(0),
        ..settings(directory)
    }
}

pub async fn joined(server: &Server, count: usize) -> Vec<Joined> {
    let options = FleetOptions {
        proxy: server.local_address().to_string(),
        token: TOKEN.into(),
        ca_pin: server.ca_pin,
        agents: count,
        at_once: 8,
        labels: 0,
        version: OLD.into(),
    };
    SimulatedFleet::join(&options).await.unwrap()
}

pub async fn set(admin: &Channel, kind: &str, spec: Value) -> Result<(), Status> {
    let document = json!({ "kind": kind, "spec": spec });
    let request = UpsertResourceRequest {
        kind: kind.into(),
        resource: Some(Resource { json: document.to_string(), ..Default::default() }),
        allow_major_downgrade: true,
        // Hosts here download nothing.
        allow_missing: true,
        ..Default::default()
    };
    ResourceServiceClient::new(admin.clone()).upsert_resource(request).await.map(drop)
}

pub async fn rollout(admin: &Channel) -> wire::Rollout {
    let mut client = RolloutServiceClient::new(admin.clone());
    client.get_rollout(wire::GetRolloutRequest {}).await.unwrap().into_inner()
}

pub async fn until(admin: &Channel, name: &str, wanted: impl Fn(&wire::Group) -> bool) -> wire::Group {
    let end = std::time::Instant::now() + SOON;
    loop {
        let groups = rollout(admin).await.groups;
        let group = groups.into_iter().find(|group| group.name == name).unwrap_or_default();
        if wanted(&group) {
            return group;
        }
        assert!(std::time::Instant::now() < end, "{name} stays as it is: {group:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A window that is open all the time, far from its edges; or one that is closed for hours.
pub fn window(open: bool) -> Value {
    let hour = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).hour();
    let start_hour = (hour + 12) % 24;
    json!({ "start_hour": start_hour, "window_hours": if open { 24 } else { 1 } })
}

/// A group of an environment, with these fields besides.
pub fn group(name: &str, environment: &str, open: bool, fields: Value) -> Value {
    let mut group = json!({
        "name": name,
        "agents": { "instance_labels_expression": format!("labels[\"environment\"] == \"{environment}\"") },
        "timeout_seconds": 900, "failure_seconds": 900,
        "max_failed_before_halt": "100%", "max_timeout_before_halt": "100%",
    });
    for more in [window(open), fields] {
        for (name, value) in more.as_object().unwrap() {
            group[name] = value.clone();
        }
    }
    group
}

pub fn regular(groups: &[Value]) -> Value {
    json!({ "agent_auto_update": true, "agent_auto_update_groups": { "regular": groups } })
}

pub fn host(n: u128) -> HostId {
    HostId::new(Uuid::from_u128(n))
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn host_key(host: HostId) -> Key {
    key(&format!("/instances/v1/default/{host}"))
}

fn bytes(value: &Value) -> bytes::Bytes {
    value.to_string().into()
}

/// A host as it is stored once the far server has heard it.
fn host_record(n: u128, environment: &str) -> HostRecord {
    let now = Timestamp::now();
    let labels = if environment.is_empty() { String::new() } else { format!("environment={environment}") };
    let updater = UpdaterStatus { agent_updates_enabled: true, ..UpdaterStatus::default() };
    HostRecord {
        report: Some(Report {
            version: OLD.parse().unwrap(),
            edition: Edition::Oss.into(),
            node_labels: Default::default(),
            instance_labels: if labels.is_empty() { Default::default() } else { labels.parse().unwrap() },
            upgrader: UpgraderKind::Binary.into(),
            updater: Some(Box::new(updater)),
            session: Session { id: Uuid::from_u128(n), started_at: now },
            rotation: RotationMark::default(),
            hint_acknowledged: 0,
            platform: None,
        }),
        server: Some(FAR.into()),
        ..HostRecord::joined(host(n), &format!("host-{n}"), vec![AgentRole::Node], now)
    }
}

pub fn updater(host: &mut HostRecord) -> &mut UpdaterStatus {
    host.report.as_mut().unwrap().updater.as_mut().unwrap()
}

pub async fn get_plain(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: diag\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}
