//! The client of the control plane: asks `find` and installs archives. Made by the program for commands that need it.

use std::io::Read;

use refit_types::{DataDir, Edition, HostId, Version};
use serde::Deserialize;

use crate::archive::{Source, install, redacted};
use crate::host::{Answer, ControlPlane, HostError};
use crate::{Disk, Layout, Profile};

/// A `find` response has a few hundred bytes.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// Called with how many bytes have arrived, and how many there are in total if that is known.
pub type OnProgress<'a> = Box<dyn Fn(u64, Option<u64>) + Send + Sync + 'a>;

/// A control plane over HTTPS, with the archives that it or a mirror serves.
pub struct HttpsControlPlane<'a> {
    /// Where archives come from.
    pub source: Box<dyn Source + 'a>,
    /// Where answers come from: small ones, so with short timeouts.
    pub answers: Box<dyn Source + 'a>,
    /// The file system.
    pub disk: &'a dyn Disk,
    /// Every path that the updater uses.
    pub layout: &'a Layout,
    /// The agent that is managed.
    pub profile: &'a Profile,
    /// `HOST:PORT`.
    pub proxy: String,
    /// Where archives are, if not at the control plane.
    pub base_url: Option<String>,
    /// Shows how a download goes.
    pub progress: OnProgress<'a>,
}

impl std::fmt::Debug for HttpsControlPlane<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpsControlPlane").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize)]
struct FindResponse {
    server_edition: Edition,
    agent_version: Version,
    agent_auto_update: bool,
    #[serde(default)]
    agent_update_jitter_seconds: u32,
    #[serde(default)]
    agent_update_attempt: u64,
}

impl HttpsControlPlane<'_> {
    /// The UUID that the agent has stored. Without one, the control plane answers as for an unknown host.
    fn host(&self) -> Option<HostId> {
        let bytes = self.disk.read(&DataDir::new(self.layout.data()).host_uuid()).ok()?;
        str::from_utf8(&bytes).ok()?.trim().parse().ok()
    }

    fn request_find(&self) -> Result<FindResponse, String> {
        let host = self.host().map(|host| format!("?host={host}")).unwrap_or_default();
        let url = format!("https://{}/v1/webapi/find{host}", self.proxy);
        let opened = self.answers.open(&url, 0).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        opened.body.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| format!("its response cannot be read: {error}"))
    }
}

impl ControlPlane for HttpsControlPlane<'_> {
    fn find(&self) -> Result<Answer, HostError> {
        let response = self.request_find().map_err(HostError)?;
        Ok(Answer {
            version: response.agent_version,
            edition: response.server_edition,
            auto_update: response.agent_auto_update,
            jitter_seconds: response.agent_update_jitter_seconds,
            attempt: response.agent_update_attempt,
        })
    }

    fn fetch(&self, answer: &Answer) -> Result<(), HostError> {
        let own = format!("https://{}/v1/artifacts", self.proxy);
        let base = self.base_url.as_deref().unwrap_or(&own);
        let url = self.profile.artifact_url(base, answer.edition, &answer.version);
        let (disk, layout, profile) = (self.disk, self.layout, self.profile);
        tracing::info!("Downloading {} from {}", answer.version, redacted(&url));
        let installed =
            install(disk, layout, profile, &*self.source, &url, &answer.version, &|bytes, total| {
                (self.progress)(bytes, total);
            })
            .map_err(|error| HostError(error.to_string()))?;
        let (place, sha256) = (installed.directory.display(), &installed.sha256);
        tracing::info!("Unpacked {} to {place}; its SHA-256 is {sha256}, as published", answer.version);
        Ok(())
    }
}
