//! The client of the control plane: asks `find` and installs archives. Made by the program for commands that need it.

use std::io::Read;

use refit_types::{DataDir, Edition, HostId, Version};
use serde::Deserialize;

use crate::archive::{Download, Interrupt, Patience, Source, TransferLimits, install};
use crate::host::{Answer, ControlPlane, FetchError, HostError};
use crate::{Disk, Layout, Profile};

/// A `find` response has a few hundred bytes.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// The longest jitter that a configuration may have; what a server says beyond it is cut.
const MAX_JITTER_SECONDS: u32 = 3600;
/// What is shown of the reason why a version is withheld, in characters.
const MAX_WORD: usize = 32;

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
    /// Where archives are, in the order in which they are tried; if none is named, at the control plane.
    pub base_urls: Vec<String>,
    /// How slow and how long transfers may be.
    pub limits: TransferLimits,
    /// Whether a person waits for the host.
    pub interrupt: Interrupt,
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
    agent_update_jitter_seconds: u64,
    #[serde(default)]
    agent_update_attempt: u64,
    #[serde(default)]
    agent_version_withheld: Option<String>,
}

impl From<FindResponse> for Answer {
    fn from(response: FindResponse) -> Self {
        Self {
            version: response.agent_version,
            edition: response.server_edition,
            auto_update: response.agent_auto_update,
            jitter_seconds: response.agent_update_jitter_seconds.min(MAX_JITTER_SECONDS.into()) as u32,
            attempt: response.agent_update_attempt,
            withheld: response.agent_version_withheld.map(|word| word.chars().take(MAX_WORD).collect()),
        }
    }
}

impl HttpsControlPlane<'_> {
    /// The UUID that the agent has stored. Without one, the control plane answers as for an unknown host.
    fn host(&self) -> Option<HostId> {
        let bytes = self.disk.read(&DataDir::new(self.layout.data()).host_uuid()).ok()?;
        str::from_utf8(&bytes).ok()?.trim().parse().ok()
    }

    /// The addresses of an archive, each once.
    fn archive_urls(&self, answer: &Answer) -> Vec<String> {
        let own = [format!("https://{}/v1/artifacts", self.proxy)];
        let bases = if self.base_urls.is_empty() { &own } else { self.base_urls.as_slice() };
        let mut urls = Vec::new();
        for base in bases {
            let url = self.profile.artifact_url(base, answer.edition, &answer.version);
            if !urls.contains(&url) {
                urls.push(url);
            }
        }
        urls
    }

    fn request_find(&self, host: Option<HostId>) -> Result<FindResponse, String> {
        let host = host.map(|host| format!("?host={host}")).unwrap_or_default();
        let url = format!("https://{}/v1/webapi/find{host}", self.proxy);
        let patience = Patience::new(self.limits.answer, Interrupt::never());
        let opened = self.answers.open(&url, 0, &patience).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        opened.body.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| format!("its response cannot be read: {error}"))
    }
}

impl ControlPlane for HttpsControlPlane<'_> {
    fn find(&self) -> Result<Answer, HostError> {
        self.request_find(self.host()).map(Answer::from).map_err(HostError)
    }

    fn find_for_new_host(&self) -> Result<Answer, HostError> {
        self.request_find(None).map(Answer::from).map_err(HostError)
    }

    fn fetch(&self, answer: &Answer) -> Result<(), FetchError> {
        let urls = self.archive_urls(answer);
        let download = Download {
            source: &*self.source,
            urls: &urls,
            limits: &self.limits,
            interrupt: &self.interrupt,
            progress: &|bytes, total| (self.progress)(bytes, total),
        };
        let installed = install(self.disk, self.layout, self.profile, &answer.version, download);
        let installed = installed.map_err(|error| match error.is_stopped() {
            true => FetchError::Stopped,
            false => FetchError::Failed(HostError(error.to_string())),
        })?;
        let (place, sha256) = (installed.directory.display(), &installed.sha256);
        tracing::info!("Unpacked {} to {place}; its SHA-256 is {sha256}, as published", answer.version);
        Ok(())
    }
}
