//! What an update does next, as a function of what is configured, installed, wanted and known of failures. Pure: no
//! disk, clock, network or randomness. `updater` collects the facts and carries the plan out.

use std::time::Duration;

use jiff::Timestamp;
use refit_types::{BootMoment, StoredWord, UpdateObstacle, UpdateTarget, UpdaterStatus, Version};

use crate::config::Config;
use crate::failure::FailedStep;
use crate::host::{Answer, Endpoint, Moment};
use crate::outcome::Outcome;
use crate::status_file::failed_step;
use crate::told_attempt::is_called_off;

/// How urgent an update is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// On the schedule of the control plane, spread over its jitter.
    Due,
    /// On the schedule of the control plane, after the jitter has passed.
    Spread,
    /// At once: an operator asked for it.
    Now,
}

/// Why the control plane is not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Updates are disabled.
    Disabled,
    /// No control plane is configured.
    NoProxy,
}

/// Everything that the plan of an update depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) answer: &'a Answer,
    pub(crate) active: Option<&'a Version>,
    pub(crate) status: &'a UpdaterStatus,
    pub(crate) urgency: Urgency,
    pub(crate) now: &'a Moment,
    /// Drawn at random from the jitter of the answer.
    pub(crate) jitter: Duration,
    /// The attempt that this host was told to make, if it has not ended.
    pub(crate) told: Option<&'a UpdateTarget>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// The version is active: repair what an interrupted run left, and remove old versions.
    KeepActive { version: Version, is_pinned: bool },
    /// Switch to the version. With `confirm`, only if the control plane still wants it before the pointer moves.
    Switch { version: Version, confirm: bool },
    /// Change nothing now.
    Postpone(Postponed),
}

/// Why another version is not switched to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Postponed {
    /// The control plane wants the version, but not on this host yet.
    NotDue { version: Version },
    /// The same, on a host for which updates are being enabled.
    NotYet { version: Version, current: Version },
    /// The control plane wanted this host to go to the version, and no longer does.
    CalledOff { version: Version },
    /// The version failed on this host: not before that time, unless in a new attempt.
    HoldBack { version: Version, step: FailedStep, reason: String, until: Timestamp },
    /// The update begins after this delay.
    Wait(Duration),
}

impl From<Postponed> for Outcome {
    fn from(postponed: Postponed) -> Self {
        match postponed {
            Postponed::NotDue { version } => {
                Self::Nothing(format!("{version} is wanted, and this host is not to go there yet"))
            }
            Postponed::NotYet { version, current } => Self::Nothing(format!(
                "updates are enabled, and {current} stays until the cluster wants {version} on this host; \
                 `enable --now` installs {version} at once"
            )),
            Postponed::CalledOff { version } => Self::CalledOff { version },
            Postponed::HoldBack { version, step, reason, until } => Self::Nothing(format!(
                "{version} failed at {step} ({reason}); it is tried again at {until}, or in a new attempt"
            )),
            Postponed::Wait(delay) => Self::Later(delay),
        }
    }
}

/// The control plane to ask, if this host is to be updated at all.
pub(crate) fn endpoint_to_ask(config: &Config) -> Result<Endpoint, NotAsked> {
    if !config.enabled {
        return Err(NotAsked::Disabled);
    }
    endpoint_of(config).ok_or(NotAsked::NoProxy)
}

/// The control plane that is configured, whether this host is to be updated or not.
pub(crate) fn endpoint_of(config: &Config) -> Option<Endpoint> {
    let proxy = config.proxy.clone()?;
    Some(Endpoint { proxy, base_urls: config.base_urls(), ca_pin: config.ca_pin.clone() })
}

/// What an update does next. A pinned version and an operator do not wait for the schedule of the control plane, and
/// its answer cannot call them off.
pub(crate) fn decide(facts: Facts<'_>) -> Plan {
    let Facts { config, answer, active, status, urgency, now, jitter, told } = facts;
    let is_pinned = config.pinned_version.is_some();
    let version = config.pinned_version.as_ref().unwrap_or(&answer.version).clone();
    if active == Some(&version) {
        return Plan::KeepActive { version, is_pinned };
    }
    if urgency == Urgency::Now || is_pinned {
        return Plan::Switch { version, confirm: false };
    }
    if !answer.auto_update {
        let is_called_off = told.is_some_and(|told| is_called_off(told, answer, status.obstacle.is_some()));
        return Plan::Postpone(
            match is_called_off || urgency == Urgency::Spread && status.obstacle.is_none() {
                true => Postponed::CalledOff { version },
                false => Postponed::NotDue { version },
            },
        );
    }
    if let Some(held_back) = hold_back(status, &version, answer.attempt, now) {
        return Plan::Postpone(held_back);
    }
    let jitter = if has_been_spread(status, answer) { Duration::ZERO } else { jitter };
    let delay = jitter.max(retry_in(status, answer, now));
    if urgency == Urgency::Due && !delay.is_zero() {
        return Plan::Postpone(Postponed::Wait(delay));
    }
    Plan::Switch { version, confirm: true }
}

/// What has kept this attempt from beginning. Hosts that the control plane does not count have one attempt for all versions.
fn obstacle_of<'a>(
    status: &'a UpdaterStatus,
    version: Option<&Version>,
    attempt: u64,
) -> Option<&'a UpdateObstacle> {
    let obstacle = status.obstacle.as_ref().filter(|obstacle| obstacle.attempt == attempt)?;
    let is_another = version.zip(obstacle.version.as_ref()).is_some_and(|(due, before)| due != before);
    (!is_another).then_some(obstacle)
}

/// Whether the jitter of this attempt has passed: the update has got as far as its download.
fn has_been_spread(status: &UpdaterStatus, answer: &Answer) -> bool {
    obstacle_of(status, Some(&answer.version), answer.attempt)
        .is_some_and(|obstacle| obstacle.step != FailedStep::Find.as_str())
}

/// How long an attempt that could not begin has to wait for its next try: never longer than the longest delay.
fn retry_in(status: &UpdaterStatus, answer: &Answer, now: &Moment) -> Duration {
    let obstacle = obstacle_of(status, Some(&answer.version), answer.attempt);
    let Some((obstacle, next_try)) = obstacle.and_then(|obstacle| Some((obstacle, obstacle.next_try?)))
    else {
        return Duration::ZERO;
    };
    let delay = Duration::try_from(next_try.duration_since(obstacle.at)).unwrap_or_default();
    delay.saturating_sub(waited(status.obstructed_at.as_ref(), obstacle.at, now)).min(LONGEST_RETRY)
}

const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// What `retry_delay` divides the delay into.
pub(crate) const RETRY_SHARES: u32 = 1000;

/// The delay after an update could not begin for the nth time: it doubles from 5 seconds to 5 minutes. `drawn` is a random
/// number below `RETRY_SHARES`; it takes away up to half, because many hosts may have the same obstacle.
pub(crate) fn retry_delay(tries: u32, drawn: u32) -> Duration {
    let most = FIRST_RETRY.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(LONGEST_RETRY);
    most - most.saturating_mul(drawn.min(RETRY_SHARES)) / RETRY_SHARES / 2
}

/// How often this attempt could not begin, including now.
pub(crate) fn tries_of(status: &UpdaterStatus, version: Option<&Version>, attempt: u64) -> u32 {
    obstacle_of(status, version, attempt).map_or(1, |obstacle| obstacle.tries.saturating_add(1))
}

/// The backoff of a version that failed on this host, unless it is over or the control plane has begun a new attempt.
/// A failure that does not blame the version (a download, a full disk) is retried each time.
fn hold_back(status: &UpdaterStatus, version: &Version, attempt: u64, now: &Moment) -> Option<Postponed> {
    let failure = status.last_failure.as_ref().filter(|failure| failure.version == *version)?;
    let StoredWord::Known(step) = failed_step(failure) else { return None };
    let (delay, waited) = (delay(status.failures), waited(status.failed_at.as_ref(), failure.at, now));
    let rest = delay.checked_sub(waited).filter(|rest| !rest.is_zero())?;
    let is_new_attempt = attempt != 0 && attempt != failure.attempt;
    (step.blames_the_version() && !is_new_attempt).then(|| Postponed::HoldBack {
        version: version.clone(),
        step,
        reason: failure.reason.clone(),
        until: now.wall.saturating_add(rest).unwrap_or(Timestamp::MAX),
    })
}

/// How long a version is not tried again that failed this often in a row: the delay doubles, up to a day.
fn delay(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_secs(30 * 60);
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST)
}

/// The time since something was stored: within one boot by the clock that counts from it. Across boots only the wall clock
/// has gone on, so it counts; but at least the time since this boot, which came later. An updater of 0.1 stored only the wall
/// clock's time.
fn waited(since_boot: Option<&BootMoment>, wall: Timestamp, now: &Moment) -> Duration {
    let by_wall = Duration::try_from(now.wall.duration_since(wall)).unwrap_or_default();
    let uptime = now.since_boot.seconds;
    match since_boot {
        Some(then) if then.boot_id == now.since_boot.boot_id && then.seconds <= uptime => {
            Duration::from_secs(uptime - then.seconds)
        }
        Some(_) => by_wall.max(Duration::from_secs(uptime)),
        None => by_wall,
    }
}

#[cfg(test)]
mod tests;
