//! The service of hosts and of the tokens by which they join, for operators.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_authority::{NewToken, Token, TokenStore};
use refit_backend::SharedBackend;
use refit_proto::nodes::v1 as wire;
use refit_proto::nodes::v1::node_service_server::NodeService;
use refit_proto::{code_of, codes_of, v1 as wire_types};
use refit_types::{AgentRole, HostId, HostRecord, Labels, Platform};
use tonic::{Request, Response, Status};

use super::{paging, store_status, timestamp, token_status};
use crate::access::caller;
use crate::authorities::Authorities;
use crate::events::{Event, Events};
use crate::fleet::Fleet;
use crate::rollout::Rollouts;
use crate::server_registry::live_servers;

/// The hosts of the fleet, and the tokens by which they join.
#[derive(Clone)]
pub(crate) struct Nodes {
    pub(crate) backend: SharedBackend,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) rollouts: Arc<Rollouts>,
    pub(crate) tokens: Arc<TokenStore>,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) events: Arc<Events>,
    pub(crate) now: fn() -> Timestamp,
}

#[tonic::async_trait]
impl NodeService for Nodes {
    async fn create_token(
        &self,
        request: Request<wire::CreateTokenRequest>,
    ) -> Result<Response<wire::CreateTokenResponse>, Status> {
        let by = caller(&request)?.name();
        let request = request.into_inner();
        let texts = request.role_texts();
        let roles = parse_roles(&texts)?;
        let ttl = request.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
        let ttl = ttl
            .ok_or_else(|| Status::invalid_argument("ttl: expected how long the token is to be good for"))?;
        let told = |created: &NewToken| {
            let (subject, roles) = (format!("token/{}", created.name()), texts.join(","));
            let message = format!("created a token to join as {roles}, good until {}", created.expires());
            Ok(vec![self.events.entry(Event::new("token.created", &by, subject, message))?])
        };
        let created = self.tokens.create(&roles, ttl, &by, (self.now)(), told).await.map_err(token_status)?;
        tracing::info!(target: "audit", by, token = created.name(), roles = ?texts, expires = %created.expires(), "created a join token");
        Ok(Response::new(wire::CreateTokenResponse {
            token: created.secret().to_owned(),
            role_codes: codes_of::<wire_types::AgentRole>(&texts),
            roles: texts,
            expires: Some(timestamp(created.expires())),
            ca_pin: self.authorities.current().authority().pin().to_string(),
        }))
    }

    async fn list_tokens(
        &self,
        request: Request<wire::ListTokensRequest>,
    ) -> Result<Response<wire::ListTokensResponse>, Status> {
        let request = request.into_inner();
        let size = paging::size(request.page_size)?;
        let after = paging::name_in(&request.page_token)?;
        let mut all = self.tokens.list().await.map_err(token_status)?;
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all.retain(|token| after.as_deref().is_none_or(|after| token.name() > after));
        let more = all.len() > size;
        all.truncate(size);
        let next = all.last().filter(|_| more).map(|token| paging::token_after(token.name()));
        let tokens = all.iter().map(|token| {
            let roles: Vec<String> = token.roles().iter().map(ToString::to_string).collect();
            wire::Token {
                name: token.name().to_owned(),
                role_codes: codes_of::<wire_types::AgentRole>(&roles),
                roles,
                expires: token.expires().map(timestamp),
            }
        });
        Ok(Response::new(wire::ListTokensResponse {
            tokens: tokens.collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn delete_token(&self, request: Request<wire::DeleteTokenRequest>) -> Result<Response<()>, Status> {
        let by = caller(&request)?.name();
        let name = request.into_inner().name;
        let told = |token: &Token| {
            let subject = format!("token/{}", token.name());
            Ok(vec![self.events.entry(Event::new("token.deleted", &by, subject, "deleted a join token"))?])
        };
        self.tokens.delete(&name, told).await.map_err(token_status)?;
        tracing::info!(target: "audit", by, token = name, "deleted a join token");
        Ok(Response::new(()))
    }

    async fn list_nodes(
        &self,
        request: Request<wire::ListNodesRequest>,
    ) -> Result<Response<wire::ListNodesResponse>, Status> {
        let request = request.into_inner();
        let size = paging::size(request.page_size)?;
        let after = paging::name_in(&request.page_token)?;
        let after = after.map(|name| HostId::from_str(&name)).transpose();
        let after = after.map_err(|error| Status::invalid_argument(format!("page_token: {error}")))?;
        let labels: BTreeMap<String, String> = request.labels.into_iter().collect();
        let labels =
            Labels::try_from(labels).map_err(|error| Status::invalid_argument(format!("labels: {error}")))?;
        let search = request.search;
        let wanted = move |instance: &HostRecord| {
            instance.has_labels(&labels) && (search.is_empty() || instance.matches(&search))
        };
        let page = self.fleet.scan_view(move |view| view.page(after, size, wanted)).await;
        let (page, more) = page.map_err(store_status)?;
        let live = live_servers(&self.backend).await.map_err(store_status)?;
        let live: BTreeSet<&str> = live.iter().map(|server| server.id.as_str()).collect();
        let next = page.last().filter(|_| more).map(|last| paging::token_after(&last.host_id.to_string()));
        Ok(Response::new(wire::ListNodesResponse {
            nodes: page.iter().map(|instance| self.on_the_wire(instance, &live)).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn delete_node(&self, request: Request<wire::DeleteNodeRequest>) -> Result<Response<()>, Status> {
        let by = caller(&request)?.name();
        let host: HostId = request
            .into_inner()
            .host_id
            .parse()
            .map_err(|error| Status::invalid_argument(format!("host_id: {error}")))?;
        if !self.rollouts.remove(host, &by).await.map_err(store_status)? {
            return Err(Status::not_found(format!("there is no host {host}")));
        }
        tracing::info!(target: "audit", by, %host, "removed a host");
        Ok(Response::new(()))
    }
}

impl Nodes {
    fn on_the_wire(&self, instance: &HostRecord, live: &BTreeSet<&str>) -> wire::Node {
        let report = instance.report.as_ref();
        let text = |value: Option<String>| value.unwrap_or_default();
        let labels = |labels: Option<&Labels>| {
            let pairs = labels.into_iter().flat_map(Labels::iter);
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let updater = report.and_then(|report| report.updater.as_deref());
        let platform = |part: fn(&Platform) -> &str| {
            let platform = report.and_then(|report| report.platform.as_deref());
            platform.map(part).unwrap_or_default().to_owned()
        };
        let roles: Vec<String> = instance.roles.iter().map(ToString::to_string).collect();
        let edition = text(report.map(|report| report.edition.to_string()));
        let upgrader = text(report.map(|report| report.upgrader.to_string()));
        let rotation_phase = text(report.map(|report| report.rotation.phase.to_string()));
        wire::Node {
            host_id: instance.host_id.to_string(),
            hostname: instance.hostname.to_string(),
            role_codes: codes_of::<wire_types::AgentRole>(&roles),
            roles,
            version: text(report.map(|report| report.version.to_string())),
            edition_code: code_of::<wire_types::Edition>(&edition),
            edition,
            node_labels: labels(report.map(|report| &report.node_labels)),
            instance_labels: labels(report.map(|report| &report.instance_labels)),
            upgrader_code: code_of::<wire_types::Upgrader>(&upgrader),
            upgrader,
            updater_status: text(updater.and_then(|status| serde_json::to_string(status).ok())),
            first_seen: Some(timestamp(instance.first_seen)),
            last_seen: Some(timestamp(self.fleet.last_seen(instance))),
            connected: instance.server.as_deref().is_some_and(|server| live.contains(server)),
            duplicate: instance.duplicate_at.is_some(),
            rotation_phase_code: code_of::<wire_types::RotationPhase>(&rotation_phase),
            rotation_phase,
            os: platform(|platform| &platform.os),
            os_version: platform(|platform| &platform.os_version),
            arch: platform(|platform| &platform.arch),
        }
    }
}

/// The roles that a request names, at least one.
pub(super) fn parse_roles(roles: &[String]) -> Result<Vec<AgentRole>, Status> {
    if roles.is_empty() {
        return Err(Status::invalid_argument("roles: at least one is needed"));
    }
    let parsed = roles.iter().map(|role| AgentRole::from_str(role)).collect::<Result<_, _>>();
    parsed.map_err(|error| Status::invalid_argument(format!("roles: {error}")))
}
