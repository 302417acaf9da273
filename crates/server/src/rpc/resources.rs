//! The service of resources: documents in and out, whatever their kind. What differs between kinds is asked of the
//! tables (`refit_types::KindInfo`, `refit_resources::Stores`); every write leaves an event.

use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use refit_backend::Revision;
use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_server::ResourceService;
use refit_resources::{Found, ResourceError, Stores};
use refit_types::{Kind, Resource, Schedule};
use tonic::{Request, Response, Status};

use super::rollouts::operator_status;
use super::{paging, resource_status, store_status};
use crate::access::{Caller, caller};
use crate::artifacts::{Missing, Published, PublishedError};
use crate::events::{Change, Events};
use crate::rollout::Rollouts;

/// The cluster's resources, as documents.
#[derive(Clone)]
pub(crate) struct Resources {
    stores: Stores,
    events: Arc<Events>,
    rollouts: Arc<Rollouts>,
    published: Published,
}

/// What a write needs to find.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Create,
    Update,
    Upsert,
}

/// The messages of the three writes, which differ by name only.
trait WriteRequest {
    const MODE: Mode;

    /// The kind, the document, and what its author consents to.
    fn parts(self) -> (String, Option<wire::Resource>, Consent);
}

/// What is refused unless its author says that it is meant.
#[derive(Debug, Clone, Copy)]
struct Consent {
    major_downgrade: bool,
    missing: bool,
    even_if_paused: bool,
}

macro_rules! write_request {
    ($message:ident, $mode:ident) => {
        impl WriteRequest for wire::$message {
            const MODE: Mode = Mode::$mode;

            fn parts(self) -> (String, Option<wire::Resource>, Consent) {
                let consent = Consent {
                    major_downgrade: self.allow_major_downgrade,
                    missing: self.allow_missing,
                    even_if_paused: self.even_if_paused,
                };
                (self.kind, self.resource, consent)
            }
        }
    };
}

write_request!(CreateResourceRequest, Create);
write_request!(UpdateResourceRequest, Update);
write_request!(UpsertResourceRequest, Upsert);

impl Resources {
    pub(crate) fn new(
        stores: Stores,
        events: Arc<Events>,
        rollouts: Arc<Rollouts>,
        published: Published,
    ) -> Self {
        Self { stores, events, rollouts, published }
    }

    /// What is missing of the version that a document chooses, if it chooses one.
    async fn missing(&self, resource: &Resource) -> Result<Option<Missing>, Status> {
        let Resource::AutoupdateVersion(chosen) = resource else { return Ok(None) };
        let missing = self.published.missing(&chosen.agent_version).await;
        missing.map_err(published_status)
    }

    /// Lets the rollout take in what was written, so that it holds for whoever asks next.
    async fn notify_rollouts(&self, kind: Kind) {
        if kind.info().drives_rollouts
            && let Err(error) = self.rollouts.operator_changed().await
        {
            tracing::warn!(%error, %kind, "the rollout has not taken in what was written; it will within a second");
        }
    }

    async fn write<R: WriteRequest>(&self, request: Request<R>) -> Result<Response<wire::Resource>, Status> {
        let caller = caller(&request)?.clone();
        let (kind, document, consent) = request.into_inner().parts();
        let kind = allowed_kind(&caller, &kind)?;
        let (resource, revision) = read(&document.unwrap_or_default().json, R::MODE)?;
        if resource.kind() != kind {
            let found = resource.kind();
            return Err(Status::invalid_argument(format!("kind: expected {kind}, found {found}")));
        }
        let paused = self.rollouts.paused_since().await.map_err(store_status)?;
        let needed = self.rollouts.level_of(&resource, paused.is_some() && consent.even_if_paused);
        self.rollouts.require_level(needed).await.map_err(operator_status)?;
        let expected = revision.as_deref().map(parse_revision).transpose()?;
        let change = match R::MODE {
            Mode::Create => Change::Create(&resource),
            Mode::Update => Change::Update(&resource, expected),
            Mode::Upsert => Change::Upsert(&resource, expected),
        };
        let paused = paused.filter(|_| !consent.even_if_paused);
        let missing = match consent.missing {
            true => None,
            false => self.missing(&resource).await?,
        };
        let may_replace = |present: Option<&Resource>| {
            if let Some(since) = paused.filter(|_| chooses_immediate(&resource, present)) {
                return Err(ResourceError::Refused(paused_refusal(since)));
            }
            let downgraded = present.filter(|_| !consent.major_downgrade);
            if let Some(why) = downgraded.and_then(|present| resource.needs_consent_to_replace(present)) {
                return Err(ResourceError::Refused(why));
            }
            if let Some(missing) = missing.as_ref().filter(|_| chooses_version(&resource, present)) {
                return Err(ResourceError::Refused(format!(
                    "spec.agent_version: {} Publish it, or repeat with --allow-missing if hosts download from a mirror \
                     elsewhere",
                    missing.in_words()
                )));
            }
            Ok(())
        };
        let (store, name) = (self.stores.of(kind), resource.name());
        let written = self.events.recorded(&caller.name(), store, (kind, name), change, may_replace).await;
        let revision = written.map_err(|error| named_status(kind, name, error))?;
        self.notify_rollouts(kind).await;
        let warnings = match resource.clone() {
            Resource::ClusterMaintenanceConfig(config) => self.rollouts.warn_of_empty_groups(*config).await,
            _ => Vec::new(),
        };
        Ok(Response::new(wire::Resource { warnings, ..encode(&resource, revision)? }))
    }
}

#[tonic::async_trait]
impl ResourceService for Resources {
    async fn get_resource(
        &self,
        request: Request<wire::GetResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(caller(&request)?, &request.get_ref().kind)?;
        let name = checked(kind, &request.get_ref().name)?;
        let found = self.stores.of(kind).get(name).await.map_err(|error| named_status(kind, name, error))?;
        let found = found.ok_or_else(|| absent(kind, name))?;
        Ok(Response::new(document(found)?))
    }

    async fn list_resources(
        &self,
        request: Request<wire::ListResourcesRequest>,
    ) -> Result<Response<wire::ListResourcesResponse>, Status> {
        let kind = allowed_kind(caller(&request)?, &request.get_ref().kind)?;
        let request = request.into_inner();
        let after = paging::name_in(&request.page_token)?;
        let after = after.as_deref().map(|name| checked(kind, name)).transpose()?;
        let page = self.stores.of(kind).list(after, paging::size(request.page_size)?).await;
        let page = page.map_err(resource_status)?;
        Ok(Response::new(wire::ListResourcesResponse {
            resources: page.items.into_iter().map(document).collect::<Result<_, _>>()?,
            next_page_token: page.next.as_deref().map(paging::token_after).unwrap_or_default(),
        }))
    }

    async fn create_resource(
        &self,
        request: Request<wire::CreateResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        self.write(request).await
    }

    async fn update_resource(
        &self,
        request: Request<wire::UpdateResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        self.write(request).await
    }

    async fn upsert_resource(
        &self,
        request: Request<wire::UpsertResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        self.write(request).await
    }

    async fn delete_resource(
        &self,
        request: Request<wire::DeleteResourceRequest>,
    ) -> Result<Response<()>, Status> {
        let kind = allowed_kind(caller(&request)?, &request.get_ref().kind)?;
        let by = caller(&request)?.name();
        let request = request.into_inner();
        let expected = Some(request.revision.as_str()).filter(|text| !text.is_empty());
        let expected = expected.map(parse_revision).transpose()?;
        let name = checked(kind, &request.name)?;
        let (store, change) = (self.stores.of(kind), Change::Delete(expected));
        let deleted = self.events.recorded(&by, store, (kind, name), change, |_| Ok(())).await;
        deleted.map_err(|error| named_status(kind, name, error))?;
        self.notify_rollouts(kind).await;
        Ok(Response::new(()))
    }
}

fn published_status(error: PublishedError) -> Status {
    let instead = "repeat with --allow-missing if hosts download from a mirror elsewhere";
    match error {
        PublishedError::NotLoaded => Status::unavailable(format!("{error}, or {instead}")),
        PublishedError::Directory(_) => Status::failed_precondition(format!("{error}; {instead}")),
    }
}

/// Whether the document chooses another version than the stored one.
fn chooses_version(resource: &Resource, present: Option<&Resource>) -> bool {
    let Resource::AutoupdateVersion(chosen) = resource else { return false };
    !matches!(present, Some(Resource::AutoupdateVersion(present)) if present.agent_version == chosen.agent_version)
}

/// Whether the document chooses a version that goes everywhere at once, other than the stored one.
fn chooses_immediate(resource: &Resource, present: Option<&Resource>) -> bool {
    let Resource::AutoupdateVersion(chosen) = resource else { return false };
    let is_same = matches!(present, Some(Resource::AutoupdateVersion(present))
        if present.agent_version == chosen.agent_version
            && present.agent_version_schedule == chosen.agent_version_schedule);
    chosen.agent_version_schedule == Schedule::Immediate && !is_same
}

fn paused_refusal(since: Timestamp) -> String {
    format!(
        "spec.agent_version_schedule: the rollout has been paused since {}, and an immediate version reaches no host \
         before it is resumed; `refitctl autoupdate resume` first, or store it with --even-if-paused",
        since.strftime("%Y-%m-%d %H:%M:%S UTC")
    )
}

/// The kind that a request names, if its caller may use the method on it.
fn allowed_kind(caller: &Caller, kind: &str) -> Result<Kind, Status> {
    let kind = Kind::from_str(kind).map_err(|error| Status::invalid_argument(error.to_string()))?;
    caller.require(kind)?;
    Ok(kind)
}

/// The resource that a document describes, and the revision that it was edited from.
fn read(json: &str, mode: Mode) -> Result<(Resource, Option<String>), Status> {
    let document = serde_json::from_str(json)
        .map_err(|error| Status::invalid_argument(format!("the document is not JSON: {error}")))?;
    let read = match mode {
        Mode::Create | Mode::Upsert => Resource::from_new_document(document),
        Mode::Update => Resource::from_document(document),
    };
    read.map_err(|errors| Status::invalid_argument(errors.to_string()))
}

fn checked(kind: Kind, name: &str) -> Result<&str, Status> {
    kind.named(name).map_err(Status::invalid_argument)
}

fn absent(kind: Kind, name: &str) -> Status {
    Status::not_found(match kind.singleton() {
        Some(_) => format!("there is no {kind}"),
        None => format!("there is no {kind} {name:?}"),
    })
}

/// Says of what kind the thing is that is not there, or is there already.
fn named_status(kind: Kind, name: &str, error: ResourceError) -> Status {
    match error {
        ResourceError::NotFound { .. } => absent(kind, name),
        ResourceError::AlreadyExists { .. } => Status::already_exists(format!("{kind} {error}")),
        ResourceError::Conflict { .. } => Status::aborted(format!("{kind} {error}")),
        other => resource_status(other),
    }
}

fn parse_revision(text: &str) -> Result<Revision, Status> {
    let revision = text.parse().map(Revision);
    revision.map_err(|_| Status::invalid_argument(format!("metadata.revision: {text:?} is not a revision")))
}

fn document(found: Found<Resource>) -> Result<wire::Resource, Status> {
    encode(&found.value, found.revision)
}

fn encode(resource: &Resource, revision: Revision) -> Result<wire::Resource, Status> {
    let document = resource.document(Some(revision.to_string()));
    let json = serde_json::to_string(&document).map_err(|error| Status::internal(error.to_string()))?;
    Ok(wire::Resource { json, warnings: Vec::new() })
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_fleet_that_is_not_loaded_is_worth_another_try() {
        let status = published_status(PublishedError::NotLoaded);
        assert_eq!(status.code(), Code::Unavailable);
        assert!(
            status.message().contains("try again in a moment, or repeat with --allow-missing"),
            "{status}"
        );
        let unreadable = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let status = published_status(unreadable.into());
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("permission denied; repeat with --allow-missing"), "{status}");
    }
}
