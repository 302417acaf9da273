//! The rollout that `plan` and `simulate` look at: resources from files, completed by those of the cluster.

use std::path::PathBuf;

use jiff::Timestamp;
use refit_convert::standing;
use refit_proto::resources::v1::GetResourceRequest;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::rollouts::v1::GetRolloutRequest;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_rollout::{Plan, Standing, fingerprint};
use refit_types::{AutoupdateVersion, ClusterMaintenanceConfig, Kind, Resource, RolloutRecord};
use tonic::Code;

use super::fleet::Source;
use crate::ctl::{Global, resources};
use crate::exit::Failure;

/// What is to be rolled out, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Proposed {
    /// Resources to try out, in YAML or JSON; what they do not say is asked of the cluster
    #[arg(long = "file", short, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Default)]
struct Found {
    config: Option<ClusterMaintenanceConfig>,
    version: Option<AutoupdateVersion>,
}

/// A rollout that could be.
pub(super) struct Proposal {
    pub(super) plan: Plan,
    fingerprint: String,
    /// Whether files say everything about it.
    is_from_files: bool,
}

impl Proposed {
    /// A rollout that begins at that moment.
    pub(super) async fn read(&self, global: &Global, start: Timestamp) -> Result<Proposal, Failure> {
        let mut found = Found::default();
        for file in &self.files {
            for resource in resources::read_resources(file)? {
                found.take(resource);
            }
        }
        let is_from_files = found.config.is_some() && found.version.is_some();
        if found.config.is_none() {
            stored(global, Kind::ClusterMaintenanceConfig).await?.into_iter().for_each(|it| found.take(it));
        }
        if found.version.is_none() {
            stored(global, Kind::AutoupdateVersion).await?.into_iter().for_each(|it| found.take(it));
        }
        let version = found.version.ok_or_else(|| {
            Failure::failed(
                "no version is to be rolled out: there is no autoupdate_version; name a file with one by --file",
            )
        })?;
        let config = found.config.unwrap_or_default();
        let (version, schedule) = (version.agent_version, version.agent_version_schedule);
        let fingerprint = fingerprint(&version, schedule, &config);
        let record = RolloutRecord::begun(1, fingerprint.clone(), version, schedule, start);
        Ok(Proposal { plan: Plan::new(&record, Default::default(), &config), fingerprint, is_from_files })
    }
}

impl Proposal {
    /// Where it stands: as the cluster's rollout if it is the same, otherwise only the cluster's pauses hold. If files say
    /// everything, also about the hosts, no cluster is asked.
    pub(super) async fn standing(&self, global: &Global, fleet: &Source) -> Result<Standing, Failure> {
        if self.is_from_files && fleet.is_a_file() {
            return Ok(Standing::default());
        }
        let mut client = RolloutServiceClient::new(global.target.connect().await?);
        let standing = standing(&client.get_rollout(GetRolloutRequest {}).await?.into_inner());
        let mut running = Found::default();
        for kind in [Kind::ClusterMaintenanceConfig, Kind::AutoupdateVersion] {
            stored(global, kind).await?.into_iter().for_each(|it| running.take(it));
        }
        let config = running.config.unwrap_or_default();
        let is_running = running.version.is_some_and(|running| {
            fingerprint(&running.agent_version, running.agent_version_schedule, &config) == self.fingerprint
        });
        Ok(if is_running { standing } else { standing.for_new_epoch() })
    }
}

impl Found {
    /// If there are several of a kind, the last one wins.
    fn take(&mut self, resource: Resource) {
        match resource {
            Resource::ClusterMaintenanceConfig(config) => self.config = Some(*config),
            Resource::AutoupdateVersion(version) => self.version = Some(version),
            _ => {}
        }
    }
}

/// The stored singleton resource of a kind.
async fn stored(global: &Global, kind: Kind) -> Result<Option<Resource>, Failure> {
    let mut client = ResourceServiceClient::new(global.target.connect().await?);
    let name = kind.singleton().unwrap_or_default().to_owned();
    match client.get_resource(GetResourceRequest { kind: kind.to_string(), name }).await {
        Ok(answer) => {
            let document = resources::document(&answer.into_inner())?;
            let (resource, _) = Resource::from_document(document).map_err(|errors| {
                Failure::failed(format!("the {kind} of the cluster cannot be read: {errors}"))
            })?;
            Ok(Some(resource))
        }
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// Parses a time with a zone, or in UTC.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let with_zone = text.parse::<Timestamp>().ok();
    let in_utc = || {
        let civil: jiff::civil::DateTime = text.trim_end_matches('Z').parse().ok()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    };
    with_zone
        .or_else(in_utc)
        .ok_or_else(|| format!("{text:?} is not a moment; expected something like 2026-03-02T08:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_taken_as_people_write_them() {
        let expected: Timestamp = "2026-03-02T08:00:00Z".parse().unwrap();
        for text in ["2026-03-02T08:00Z", "2026-03-02 08:00", "2026-03-02T08:00:00", "2026-03-02T09:00+01:00"]
        {
            assert_eq!(moment(text), Ok(expected), "{text}");
        }
        assert!(moment("2026-03-02").is_ok_and(|at| at < expected));
        for bad in ["", "tomorrow", "2026-13-02T08:00Z"] {
            assert!(moment(bad).is_err(), "{bad:?}");
        }
    }
}
