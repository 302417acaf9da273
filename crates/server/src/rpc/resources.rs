use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use refit_backend::{Revision, SharedBackend};
use refit_migrations::{Found, Listed, ResourceStore, ServiceError};
use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_server::ResourceService;
use refit_types::{Channel, Kind, Resource};
use tonic::{Request, Response, Status};

use super::rollouts::operator_status;
use super::{paging, service_status};
use crate::access::caller;
use crate::events::{Change, Events};
use crate::release::{autoupdate_versions, maintenance_configs};
use crate::rollout::Rollouts;

/// The cluster's resources, as documents.
#[derive(Clone)]
pub(crate) struct Resources {
    channels: Arc<dyn Documents>,
    maintenance_configs: Arc<dyn Documents>,
    autoupdate_versions: Arc<dyn Documents>,
    rollouts: Arc<Rollouts>,
}

/// How a document is to be stored.
#[derive(Debug, Clone, Copy)]
enum Mode {
    Create,
    Update,
    Upsert,
}

/// How a document is to be stored, and from what.
#[derive(Debug, Clone, Copy)]
struct How {
    mode: Mode,
    /// The revision that it was edited from.
    expected: Option<Revision>,
    allow_major_downgrade: bool,
}

/// The resources of one kind, without its type.
#[tonic::async_trait]
trait Documents: Send + Sync {
    async fn get(&self, name: &str) -> Result<Option<Found<Resource>>, ServiceError>;

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<Resource>, ServiceError>;

    async fn write(&self, by: &str, resource: &Resource, how: How) -> Result<Revision, ServiceError>;

    async fn delete(
        &self,
        by: &str,
        kind: Kind,
        name: &str,
        expected: Option<Revision>,
    ) -> Result<Revision, ServiceError>;
}

struct Typed<T> {
    store: Arc<dyn ResourceStore<T>>,
    events: Arc<Events>,
}

fn untyped<T: Into<Resource>>(found: Found<T>) -> Found<Resource> {
    Found { value: found.value.into(), revision: found.revision }
}

#[tonic::async_trait]
impl<T> Documents for Typed<T>
where
    T: Into<Resource> + TryFrom<Resource, Error = Kind> + Clone + Debug + Send + Sync,
{
    async fn get(&self, name: &str) -> Result<Option<Found<Resource>>, ServiceError> {
        Ok(self.store.get(name).await?.map(untyped))
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Listed<Resource>, ServiceError> {
        let Listed { items, next } = self.store.list(after, limit).await?;
        Ok(Listed { items: items.into_iter().map(untyped).collect(), next })
    }

    async fn write(&self, by: &str, resource: &Resource, how: How) -> Result<Revision, ServiceError> {
        let (kind, name) = (resource.kind(), resource.name());
        let value = T::try_from(resource.clone()).map_err(|kind| ServiceError::Garbled {
            key: name.to_owned(),
            reason: format!("a {kind} is stored elsewhere"),
        })?;
        let change = match how.mode {
            Mode::Create => Change::Create(&value),
            Mode::Update => Change::Update(&value, how.expected),
            Mode::Upsert => Change::Upsert(&value, how.expected),
        };
        let may = |present: Option<&T>| match present {
            Some(present) if !how.allow_major_downgrade => {
                refuse_major_downgrade(&present.clone().into(), resource)
            }
            _ => Ok(()),
        };
        self.events.recorded(by, &*self.store, (kind, name), as_resource, change, may).await
    }

    async fn delete(
        &self,
        by: &str,
        kind: Kind,
        name: &str,
        expected: Option<Revision>,
    ) -> Result<Revision, ServiceError> {
        let change = Change::Delete(expected);
        self.events.recorded(by, &*self.store, (kind, name), as_resource, change, |_| Ok(())).await
    }
}

impl Resources {
    pub(crate) fn new(
        backend: &SharedBackend,
        channels: Arc<dyn ResourceStore<Channel>>,
        events: Arc<Events>,
        rollouts: Arc<Rollouts>,
    ) -> Self {
        let (configs, versions) = (maintenance_configs(backend), autoupdate_versions(backend));
        Self {
            channels: Arc::new(Typed { store: channels, events: events.clone() }),
            maintenance_configs: Arc::new(Typed { store: configs, events: events.clone() }),
            autoupdate_versions: Arc::new(Typed { store: versions, events }),
            rollouts,
        }
    }

    fn of(&self, kind: Kind) -> &dyn Documents {
        match kind {
            Kind::Channel => &*self.channels,
            Kind::ClusterMaintenanceConfig => &*self.maintenance_configs,
            Kind::AutoupdateVersion => &*self.autoupdate_versions,
        }
    }

    /// What was written of rollouts holds for whoever asks next, not only from the driver's next turn on.
    async fn make_known(&self, kind: Kind) {
        if kind != Kind::Channel
            && let Err(error) = self.rollouts.operator_changed().await
        {
            tracing::warn!(%error, "what was written of rollouts is not known here yet");
        }
    }

    async fn store(
        &self,
        by: &str,
        kind: Kind,
        document: Option<wire::Resource>,
        mode: Mode,
        allow_major_downgrade: bool,
    ) -> Result<Response<wire::Resource>, Status> {
        let text = document.unwrap_or_default().json;
        let value = serde_json::from_str(&text)
            .map_err(|error| Status::invalid_argument(format!("the document is not JSON: {error}")))?;
        let (resource, revision) =
            Resource::from_document(value).map_err(|faults| Status::invalid_argument(faults.to_string()))?;
        if resource.kind() != kind {
            let found = resource.kind();
            return Err(Status::invalid_argument(format!("kind: expected {kind}, found {found}")));
        }
        let needed = self.rollouts.level_of(&resource);
        self.rollouts.require_level(needed).await.map_err(operator_status)?;
        let expected = revision.as_deref().map(parse_revision).transpose()?;
        let how = How { mode, expected, allow_major_downgrade };
        let revision = self.of(kind).write(by, &resource, how).await;
        let revision = revision.map_err(|error| named_status(kind, resource.name(), error))?;
        self.make_known(kind).await;
        Ok(Response::new(encode(&resource, revision)?))
    }
}

#[tonic::async_trait]
impl ResourceService for Resources {
    async fn get_resource(
        &self,
        request: Request<wire::GetResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        let name = checked(kind, &request.get_ref().name)?;
        let found = self.of(kind).get(name).await.map_err(|error| named_status(kind, name, error))?;
        let found = found.ok_or_else(|| absent(kind, name))?;
        Ok(Response::new(document(found)?))
    }

    async fn list_resources(
        &self,
        request: Request<wire::ListResourcesRequest>,
    ) -> Result<Response<wire::ListResourcesResponse>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        let request = request.into_inner();
        let after = paging::name_in(&request.page_token)?;
        let after = after.as_deref().map(|name| checked(kind, name)).transpose()?;
        let page = self.of(kind).list(after, paging::size(request.page_size)?).await;
        let page = page.map_err(service_status)?;
        Ok(Response::new(wire::ListResourcesResponse {
            resources: page.items.into_iter().map(document).collect::<Result<_, _>>()?,
            next_page_token: page.next.as_deref().map(paging::token_after).unwrap_or_default(),
        }))
    }

    async fn create_resource(
        &self,
        request: Request<wire::CreateResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        let by = caller(&request)?.name();
        let request = request.into_inner();
        self.store(&by, kind, request.resource, Mode::Create, request.allow_major_downgrade).await
    }

    async fn update_resource(
        &self,
        request: Request<wire::UpdateResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        let by = caller(&request)?.name();
        let request = request.into_inner();
        self.store(&by, kind, request.resource, Mode::Update, request.allow_major_downgrade).await
    }

    async fn upsert_resource(
        &self,
        request: Request<wire::UpsertResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        let by = caller(&request)?.name();
        let request = request.into_inner();
        self.store(&by, kind, request.resource, Mode::Upsert, request.allow_major_downgrade).await
    }

    async fn delete_resource(
        &self,
        request: Request<wire::DeleteResourceRequest>,
    ) -> Result<Response<()>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        let by = caller(&request)?.name();
        let request = request.into_inner();
        let expected = Some(request.revision.as_str()).filter(|text| !text.is_empty());
        let expected = expected.map(parse_revision).transpose()?;
        let name = checked(kind, &request.name)?;
        let deleted = self.of(kind).delete(&by, kind, name, expected).await;
        deleted.map_err(|error| named_status(kind, name, error))?;
        self.make_known(kind).await;
        Ok(Response::new(()))
    }
}

/// The kind that a request names, if its caller may use the method on it.
fn allowed_kind<T>(request: &Request<T>, kind: &str) -> Result<Kind, Status> {
    let kind = Kind::from_str(kind).map_err(|error| Status::invalid_argument(error.to_string()))?;
    caller(request)?.require(kind)?;
    Ok(kind)
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
fn named_status(kind: Kind, name: &str, error: ServiceError) -> Status {
    match error {
        ServiceError::NotFound { .. } => absent(kind, name),
        ServiceError::AlreadyExists { .. } => Status::already_exists(format!("{kind} {error}")),
        ServiceError::Conflict { .. } => Status::aborted(format!("{kind} {error}")),
        other => service_status(other),
    }
}

fn refuse_major_downgrade(present: &Resource, wanted: &Resource) -> Result<(), ServiceError> {
    let (Resource::AutoupdateVersion(present), Resource::AutoupdateVersion(wanted)) = (present, wanted)
    else {
        return Ok(());
    };
    let (present, wanted) = (&present.agent_version, &wanted.agent_version);
    match wanted.major() < present.major() {
        true => Err(ServiceError::Refused(format!(
            "spec.agent_version: {wanted} is of a lower major version than the present {present}; agents may not be \
             able to read what newer ones stored; repeat with --allow-major-downgrade if that is meant"
        ))),
        false => Ok(()),
    }
}

fn as_resource<T: Clone + Into<Resource>>(value: &T) -> Resource {
    value.clone().into()
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
    Ok(wire::Resource { json })
}
