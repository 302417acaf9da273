//! The host list of `autoupdate status GROUP --hosts`, sorted by outcome.

use refit_convert::{failed_agent_from_wire, moment};
use refit_proto::code_of;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_proto::rollouts::v1::{GroupHost, HostOutcome, ListGroupHostsRequest};
use refit_types::FailedAgent;
use serde::Serialize;
use tonic::transport::Channel;

use crate::ctl::Global;
use crate::exit::Failure;
use crate::output;

/// A host of a group, as programs read it.
#[derive(Debug, Serialize)]
struct Host {
    host_id: String,
    hostname: String,
    version: String,
    outcome: String,
    reason: String,
    started_at: Option<jiff::Timestamp>,
    attempt: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_agent: Option<FailedAgent>,
}

/// Shows the hosts of a group, failures first.
pub(super) async fn show(
    global: &Global,
    client: &mut RolloutServiceClient<Channel>,
    group: &str,
    outcome: String,
) -> Result<(), Failure> {
    let mut hosts = Vec::new();
    let mut page_token = String::new();
    loop {
        let (group, outcome) = (group.to_owned(), outcome.clone());
        let outcome_code = code_of::<HostOutcome>(&outcome);
        let request = ListGroupHostsRequest { group, outcome, outcome_code, page_size: 1000, page_token };
        let page = client.list_group_hosts(request).await?.into_inner();
        hosts.extend(page.hosts.into_iter().map(Host::from));
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    hosts.sort_by_key(|host| rank(&host.outcome));
    output::show(global.format, &hosts, || text(&hosts))
}

fn rank(outcome: &str) -> usize {
    const ORDER: [&str; 6] = ["failed", "timed_out", "in_flight", "held", "away", "unchanged"];
    ORDER.iter().position(|known| *known == outcome).unwrap_or(ORDER.len())
}

fn text(hosts: &[Host]) -> String {
    if hosts.is_empty() {
        return "There is none.".into();
    }
    let rows = hosts.iter().map(|host| {
        [
            host.outcome.replace('_', " "),
            host.hostname.clone(),
            host.host_id.clone(),
            host.version.clone(),
            host.reason.clone(),
        ]
    });
    let table = output::table(["OUTCOME", "HOST", "UUID", "VERSION", "REASON"], rows);
    let told = [Vec::new()].into_iter().chain(
        hosts.iter().map(|host| host.failed_agent.as_ref().map(output::failed_agent).unwrap_or_default()),
    );
    let lines = table.lines().zip(told).flat_map(|(row, told)| {
        [row.to_owned()].into_iter().chain(told.into_iter().map(|line| format!("    {line}")))
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl From<GroupHost> for Host {
    fn from(host: GroupHost) -> Self {
        Self {
            outcome: host.outcome_text(),
            host_id: host.host_id,
            hostname: host.hostname,
            version: host.version,
            reason: host.reason,
            started_at: moment(host.started_at),
            attempt: host.attempt,
            failed_agent: host.failed_agent.map(failed_agent_from_wire),
        }
    }
}
