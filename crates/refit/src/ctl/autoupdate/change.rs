//! Read-modify-write of a singleton resource with retry on conflict, for the `autoupdate` subcommands.

use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_types::{Kind, Resource};
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;

use crate::ctl::consent::Consent;
use crate::exit::Failure;

/// Attempts of a change that conflicts with others.
const TRIES: u32 = 10;

/// The name of a singleton resource.
pub(super) fn name_of(kind: Kind) -> &'static str {
    kind.singleton().unwrap_or_default()
}

/// The stored document of a singleton resource.
pub(super) async fn stored(
    client: &mut ResourceServiceClient<Channel>,
    kind: Kind,
) -> Result<Option<Value>, Failure> {
    let request = wire::GetResourceRequest { kind: kind.to_string(), name: name_of(kind).into() };
    match client.get_resource(request).await {
        Ok(found) => serde_json::from_str(&found.into_inner().json).map(Some).map_err(Failure::failed),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// A document as it was stored, and what the server warned of.
pub(super) struct Changed {
    pub(super) document: Value,
    pub(super) warnings: Vec<String>,
}

/// Changes the document of a singleton resource. On conflict the change is applied again to the newly stored document,
/// so that concurrent changes are not lost.
pub(super) async fn change(
    client: &mut ResourceServiceClient<Channel>,
    kind: Kind,
    consent: Consent,
    change: impl Fn(&mut Value) -> Result<(), Failure>,
) -> Result<Changed, Failure> {
    let Consent { allow_major_downgrade, allow_missing, even_if_paused } = consent;
    let mut last = Failure::failed("");
    for _ in 0..TRIES {
        let before = stored(client, kind).await?;
        let exists = before.is_some();
        let fresh = || json!({ "kind": kind.name(), "metadata": { "name": name_of(kind) }, "spec": {} });
        let mut document = before.unwrap_or_else(fresh);
        change(&mut document)?;
        check(&document)?;
        let (kind, resource) =
            (kind.to_string(), Some(wire::Resource { json: document.to_string(), ..Default::default() }));
        let answer = match exists {
            true => {
                let request = wire::UpdateResourceRequest {
                    kind,
                    resource,
                    allow_major_downgrade,
                    allow_missing,
                    even_if_paused,
                };
                client.update_resource(request).await
            }
            false => {
                let request = wire::CreateResourceRequest {
                    kind,
                    resource,
                    allow_major_downgrade,
                    allow_missing,
                    even_if_paused,
                };
                client.create_resource(request).await
            }
        };
        match answer {
            Ok(stored) => {
                let stored = stored.into_inner();
                let document = serde_json::from_str(&stored.json).map_err(Failure::failed)?;
                return Ok(Changed { document, warnings: stored.warnings });
            }
            Err(status) if matches!(status.code(), Code::Aborted | Code::AlreadyExists | Code::NotFound) => {
                last = status.into();
            }
            Err(status) => return Err(status.into()),
        }
    }
    Err(last)
}

/// Validates the document as the server would, and reports all errors at once.
fn check(document: &Value) -> Result<(), Failure> {
    let Err(errors) = Resource::from_document(document.clone()) else { return Ok(()) };
    let told: Vec<String> = errors.list().iter().map(|error| format!("\n  {error}")).collect();
    Err(Failure::failed(format!("the configuration cannot be changed so:{}", told.concat())))
}
