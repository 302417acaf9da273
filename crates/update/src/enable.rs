//! What `enable` does with the version of a host: it asks the control plane as what the host is to the cluster, and a
//! host that the cluster knows changes its version only when it is told to. Called by `updater`.

use refit_types::{DataDir, Version};

use crate::environment::Environment;
use crate::host::{Answer, ControlPlane};
use crate::outcome::UpdateError;
use crate::plan::{Facts, Plan, Postponed, Urgency, decide};

/// What the host is to the cluster, as far as the host can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its agent has never run.
    New,
    /// Its agent has run, so that it has a UUID, and is gone.
    Emptied,
    /// It has a UUID and a version: one that the updater has installed, or an agent of a package that runs.
    Joined { current: Version },
}

/// Why `enable` installs nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotEnabled {
    /// The rollout of the version is stopped, and there is no other to install on a new host.
    #[error(
        "the rollout of {version} is {stopped}, and the control plane has no version for new hosts whose rollout ended \
         well; nothing was installed: run `enable` again once `refitctl autoupdate status` shows that the rollout goes on, \
         or install {version} all the same with `enable --now`"
    )]
    Withheld {
        /// What the cluster is to run.
        version: Version,
        /// `halted`, `paused` or `unclear`.
        stopped: String,
    },
    /// The host runs another version that the updater has not installed, and is not to leave it yet.
    #[error(
        "the cluster does not want {version} on this host yet, and the updater has not installed {current}, which runs; \
         nothing has changed: run `enable` again when it is the turn of the host's group, or install {version} now with \
         `enable --now`"
    )]
    NotDue {
        /// What the cluster is to run.
        version: Version,
        /// What runs.
        current: Version,
    },
    /// The control plane has taken its word back during the download.
    #[error(
        "the cluster no longer wants {version} on this host; nothing was installed: run `enable` again, or install \
         {version} all the same with `enable --now`"
    )]
    CalledOff {
        /// What the cluster wanted.
        version: Version,
    },
}

impl Environment<'_> {
    /// What the host is to the cluster. A UUID that cannot be read is one.
    pub(crate) fn standing(&self, active: Option<&Version>) -> Result<Standing, UpdateError> {
        let uuid = DataDir::new(self.layout.data()).host_uuid();
        let found = self.disk.kind(&uuid);
        let found = found.map_err(|source| UpdateError::Disk { what: "the host's UUID", source })?;
        if found.is_none() {
            return Ok(Standing::New);
        }
        let runs = || self.agent.condition().map(|condition| condition.version);
        Ok(match active.cloned().or_else(runs) {
            Some(current) => Standing::Joined { current },
            None => Standing::Emptied,
        })
    }
}

/// Asks which version to install. A host without an agent never comes to the turn of its group, so it gets what new hosts
/// get, unless it is told to go.
pub(crate) fn ask(control_plane: &dyn ControlPlane, standing: &Standing) -> Result<Answer, UpdateError> {
    let answer = control_plane.find().map_err(UpdateError::ControlPlane)?;
    match standing {
        Standing::Emptied if !answer.auto_update => {
            control_plane.find_for_new_host().map_err(UpdateError::ControlPlane)
        }
        _ => Ok(answer),
    }
}

/// What `enable` does, unless an operator asks for the version now. A new host installs what it is given, unless that is
/// withheld.
pub(crate) fn decide_enable(facts: Facts<'_>, standing: &Standing) -> Result<Plan, NotEnabled> {
    let Facts { config, answer, active, .. } = facts;
    let at_once = decide(Facts { urgency: Urgency::Now, ..facts });
    if config.pinned_version.is_some() || matches!(at_once, Plan::KeepActive { .. }) {
        return Ok(at_once);
    }
    let version = answer.version.clone();
    let not_yet = |current: &Version| {
        Plan::Postpone(Postponed::NotYet { version: version.clone(), current: current.clone() })
    };
    match (standing, &answer.withheld, active) {
        (Standing::New | Standing::Emptied, None, _) => Ok(at_once),
        (Standing::New | Standing::Emptied, Some(_), Some(active)) => Ok(not_yet(active)),
        (Standing::New | Standing::Emptied, Some(stopped), None) => {
            Err(NotEnabled::Withheld { version, stopped: stopped.clone() })
        }
        (Standing::Joined { current }, _, Some(_)) if !answer.auto_update => Ok(not_yet(current)),
        (Standing::Joined { .. }, _, Some(_)) => Ok(decide(Facts { urgency: Urgency::Spread, ..facts })),
        (Standing::Joined { current }, _, None) if *current == version => Ok(at_once),
        (Standing::Joined { .. }, _, None) if answer.auto_update => {
            Ok(Plan::Switch { version, confirm: true })
        }
        (Standing::Joined { current }, _, None) => {
            Err(NotEnabled::NotDue { version, current: current.clone() })
        }
    }
}

#[cfg(test)]
mod tests;
