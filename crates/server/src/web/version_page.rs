//! The page that chooses a version: shows the preview first, and stores it as the signed-in user.

use askama::Template;
use axum::body::Body;
use axum::http::Response;
use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_server::ResourceService;
use refit_types::{Kind, Schedule, Version};
use serde_json::{Value, json};
use tonic::Code;

use super::Web;
use super::actions::called_by;
use super::cached::aside;
use super::forecast::{Forecast, Proposal, cohorts};
use super::request::PageRequest;
use super::response::{Frame, Refusal, redirect, rendered, sentence};
use super::rollout_page::UPSERT;
use crate::artifacts::{Missing, PublishedVersions};

const GET: &str = "/refit.resources.v1.ResourceService/GetResource";
const CREATE: &str = "/refit.resources.v1.ResourceService/CreateResource";
const UPDATE: &str = "/refit.resources.v1.ResourceService/UpdateResource";
const KIND: Kind = Kind::AutoupdateVersion;

#[derive(Template)]
#[template(path = "version.html")]
struct VersionPage {
    frame: Frame,
    token: String,
    present: Option<(String, String)>,
    version: String,
    error: String,
    /// What is published: versions, the newest first, with their builds.
    published: Vec<(String, String)>,
    schedules: Vec<(&'static str, &'static str, bool)>,
    preview: Option<Proposed>,
}

/// A proposed version with its consequences.
struct Proposed {
    version: String,
    schedule: &'static str,
    revision: String,
    told: Vec<String>,
    major_downgrade: bool,
    /// Whether this server does not publish it for every host.
    missing: bool,
    /// Whether it is an immediate version and the rollout is paused.
    while_paused: bool,
    forecast: Forecast,
}

/// The current version, from its document.
struct Present {
    version: Version,
    schedule: String,
    revision: String,
    document: Value,
}

impl Web {
    async fn chosen(&self, request: &PageRequest) -> Result<Option<Present>, Refusal> {
        let caller = request.caller(GET, Some(KIND))?;
        let name = KIND.singleton().unwrap_or_default().to_owned();
        let message = wire::GetResourceRequest { kind: KIND.to_string(), name };
        let found = match self.resources.get_resource(called_by(caller, message)).await {
            Ok(found) => found.into_inner(),
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(status.into()),
        };
        let document: Value = serde_json::from_str(&found.json).unwrap_or_default();
        let text =
            |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = text("/spec/agent_version").parse();
        let version = version.map_err(|error| Refusal::Conflict(format!("What is stored: {error}.")))?;
        let (schedule, revision) = (text("/spec/agent_version_schedule"), text("/metadata/revision"));
        Ok(Some(Present { version, schedule, revision, document }))
    }

    /// Asks for a version, and shows its consequences before it is confirmed.
    pub(super) async fn version_page(&self, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        request.caller(UPSERT, Some(KIND))?;
        self.rollouts.sync_from_store().await?;
        let present = self.chosen(request).await?;
        let asked = request.query.get("version").trim_start_matches('v').to_owned();
        let schedule: Schedule = request.query.get("schedule").parse().unwrap_or(Schedule::Regular);
        let (mut error, mut preview) = (String::new(), None);
        if !asked.is_empty() {
            match asked.parse::<Version>() {
                Ok(version) => preview = Some(self.proposed(version, schedule, present.as_ref()).await?),
                Err(invalid) => error = invalid.to_string(),
            }
        }
        let published = self.published.versions().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the artifacts directory cannot be read");
            Default::default()
        });
        let frame = request.frame(self, "version", "Set a version");
        let token = frame.who.as_ref().map(|who| who.token.clone()).unwrap_or_default();
        let schedules = [
            (Schedule::Regular, "in the groups and windows for every day"),
            (Schedule::Critical, "in the groups and windows for what cannot wait"),
            (Schedule::Immediate, "everywhere at once: no groups, no windows"),
        ];
        rendered(&VersionPage {
            frame,
            token,
            present: present.map(|present| (present.version.to_string(), present.schedule)),
            version: asked,
            error,
            published: listed(&published),
            schedules: schedules.map(|(one, means)| (one.as_str(), means, one == schedule)).into(),
            preview,
        })
    }

    async fn proposed(
        &self,
        version: Version,
        schedule: Schedule,
        present: Option<&Present>,
    ) -> Result<Proposed, Refusal> {
        let mut told = vec![match present {
            Some(present) if present.version == version && present.schedule == schedule.as_str() => {
                format!("v{version} ({schedule}) is what is chosen already: nothing changes.")
            }
            Some(present) => format!(
                "Agents are to run v{version} ({schedule}) instead of v{} ({}). A new epoch begins, and every group \
                 starts over.",
                present.version, present.schedule
            ),
            None => format!("Agents are to run v{version} ({schedule})."),
        }];
        if let Some(present) = present.filter(|present| version < present.version) {
            told.push(format!(
                "This is a downgrade: agents go from v{} back to v{version}.",
                present.version
            ));
        }
        let major_downgrade = present.is_some_and(|present| version.major() < present.version.major());
        if major_downgrade {
            told.push(
                "It is of a lower major version: agents may not be able to read what newer ones stored."
                    .into(),
            );
        }
        let is_present = present.is_some_and(|present| present.version == version);
        let missing = match is_present {
            true => None,
            false => {
                let missing = self.published.missing(&version).await;
                missing.map_err(|error| Refusal::Unavailable(sentence(&error.to_string())))?
            }
        };
        told.extend(missing.as_ref().map(Missing::in_words));
        let (_, record) = self.rollouts.settings();
        let while_paused =
            schedule == Schedule::Immediate && record.is_some_and(|record| record.paused.is_some());
        if while_paused {
            told.push("The rollout is paused: no host is told before it is resumed.".into());
        }
        let (fleet, rollouts, now) = (self.fleet.clone(), self.rollouts.clone(), (self.now)());
        let proposal = Proposal::of(version.clone(), schedule, &rollouts, now);
        let preview =
            aside(move || proposal.preview(&cohorts(&proposal.plan, &fleet, &rollouts), now)).await?;
        Ok(Proposed {
            version: version.to_string(),
            schedule: schedule.as_str(),
            revision: present.map(|present| present.revision.clone()).unwrap_or_default(),
            told,
            major_downgrade,
            missing: missing.is_some(),
            while_paused,
            forecast: Forecast::of(&preview),
        })
    }

    /// Stores the version through the API as the signed-in user. A version that was chosen since is not overwritten.
    pub(super) async fn choose(&self, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        request.posted()?;
        let revision = request.form.get("revision");
        let allow_major_downgrade = request.form.get("allow_major_downgrade") == "yes";
        let allow_missing = request.form.get("allow_missing") == "yes";
        let even_if_paused = request.form.get("even_if_paused") == "yes";
        let spec = json!({
            "agent_version": request.form.get("version"),
            "agent_version_schedule": request.form.get("schedule"),
        });
        let kind = KIND.to_string();
        if revision.is_empty() {
            let caller = request.caller(CREATE, Some(KIND))?;
            let document = json!({ "kind": kind, "spec": spec });
            let resource = Some(wire::Resource { json: document.to_string(), ..Default::default() });
            let message = wire::CreateResourceRequest {
                kind,
                resource,
                allow_major_downgrade,
                allow_missing,
                even_if_paused,
            };
            self.resources.create_resource(called_by(caller, message)).await?;
        } else {
            let caller = request.caller(UPDATE, Some(KIND))?;
            let present = self.chosen(request).await?;
            let mut document = present.map(|present| present.document).unwrap_or_default();
            document["kind"] = json!(kind);
            document["spec"] = spec;
            document["metadata"]["revision"] = json!(revision);
            let resource = Some(wire::Resource { json: document.to_string(), ..Default::default() });
            let message = wire::UpdateResourceRequest {
                kind,
                resource,
                allow_major_downgrade,
                allow_missing,
                even_if_paused,
            };
            self.resources.update_resource(called_by(caller, message)).await?;
        }
        let mut back = form_urlencoded::Serializer::new(String::new());
        back.append_pair("done", "version").append_pair("version", request.form.get("version"));
        Ok(redirect(&format!("/web/rollout?{}", back.finish())))
    }
}

/// Versions that the page lists: the newest.
const MOST_PUBLISHED: usize = 50;

fn listed(published: &PublishedVersions) -> Vec<(String, String)> {
    let newest = published.iter().rev().take(MOST_PUBLISHED);
    newest
        .map(|(version, builds)| {
            let builds: Vec<String> = builds.iter().map(ToString::to_string).collect();
            (version.to_string(), builds.join(", "))
        })
        .collect()
}
