use std::str::FromStr;
use std::sync::Arc;

use refit_backend::Revision;
use refit_migrations::{Found, ResourceStore};
use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_server::ResourceService;
use refit_types::{Channel, Kind, Resource};
use tonic::{Request, Response, Status};

use super::{paging, service_status};
use crate::access::caller;

/// The cluster's resources, as documents.
#[derive(Clone)]
pub(crate) struct Resources {
    pub(crate) channels: Arc<dyn ResourceStore<Channel>>,
}

/// How a document is to be stored.
#[derive(Clone, Copy)]
enum Mode {
    Create,
    Update,
    Upsert,
}

impl Resources {
    async fn store(
        &self,
        kind: Kind,
        document: Option<wire::Resource>,
        mode: Mode,
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
        let expected = revision.as_deref().map(parse_revision).transpose()?;
        let Resource::Channel(channel) = &resource;
        let name = channel.name.as_str();
        let stored = match mode {
            Mode::Create => self.channels.create(name, channel).await,
            Mode::Update => self.channels.update(name, channel, expected).await,
            Mode::Upsert => self.channels.upsert(name, channel).await,
        };
        Ok(Response::new(encode(&resource, stored.map_err(service_status)?)?))
    }
}

#[tonic::async_trait]
impl ResourceService for Resources {
    async fn get_resource(
        &self,
        request: Request<wire::GetResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        let name = &request.get_ref().name;
        let Kind::Channel = kind;
        let found = self.channels.get(checked(name)?).await.map_err(service_status)?;
        let found = found.ok_or_else(|| Status::not_found(format!("there is no {kind} {name:?}")))?;
        Ok(Response::new(document(found)?))
    }

    async fn list_resources(
        &self,
        request: Request<wire::ListResourcesRequest>,
    ) -> Result<Response<wire::ListResourcesResponse>, Status> {
        let Kind::Channel = allowed_kind(&request, &request.get_ref().kind)?;
        let request = request.into_inner();
        let after = paging::name_in(&request.page_token)?;
        let after = after.as_deref().map(checked).transpose()?;
        let page =
            self.channels.list(after, paging::size(request.page_size)?).await.map_err(service_status)?;
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
        self.store(kind, request.into_inner().resource, Mode::Create).await
    }

    async fn update_resource(
        &self,
        request: Request<wire::UpdateResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        self.store(kind, request.into_inner().resource, Mode::Update).await
    }

    async fn upsert_resource(
        &self,
        request: Request<wire::UpsertResourceRequest>,
    ) -> Result<Response<wire::Resource>, Status> {
        let kind = allowed_kind(&request, &request.get_ref().kind)?;
        self.store(kind, request.into_inner().resource, Mode::Upsert).await
    }

    async fn delete_resource(
        &self,
        request: Request<wire::DeleteResourceRequest>,
    ) -> Result<Response<()>, Status> {
        let Kind::Channel = allowed_kind(&request, &request.get_ref().kind)?;
        let request = request.into_inner();
        let expected = Some(request.revision.as_str()).filter(|text| !text.is_empty());
        let expected = expected.map(parse_revision).transpose()?;
        self.channels.delete(checked(&request.name)?, expected).await.map_err(service_status)?;
        Ok(Response::new(()))
    }
}

/// The kind that a request names, if its caller may use the method on it.
fn allowed_kind<T>(request: &Request<T>, kind: &str) -> Result<Kind, Status> {
    let kind = Kind::from_str(kind).map_err(|error| Status::invalid_argument(error.to_string()))?;
    caller(request)?.require(kind)?;
    Ok(kind)
}

fn checked(name: &str) -> Result<&str, Status> {
    match refit_types::ChannelName::from_str(name) {
        Ok(_) => Ok(name),
        Err(error) => Err(Status::invalid_argument(error.to_string())),
    }
}

fn parse_revision(text: &str) -> Result<Revision, Status> {
    let revision = text.parse().map(Revision);
    revision.map_err(|_| Status::invalid_argument(format!("metadata.revision: {text:?} is not a revision")))
}

fn document(found: Found<Channel>) -> Result<wire::Resource, Status> {
    encode(&Resource::Channel(found.value), found.revision)
}

fn encode(resource: &Resource, revision: Revision) -> Result<wire::Resource, Status> {
    let document = resource.document(Some(revision.to_string()));
    let json = serde_json::to_string(&document).map_err(|error| Status::internal(error.to_string()))?;
    Ok(wire::Resource { json })
}
