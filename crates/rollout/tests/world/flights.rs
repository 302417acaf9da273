//! Hosts that were told to go and may be away, by what they were told and what they report. What is stored of their
//! upgrades is not asked, so a slot that is given back too early is found.

use jiff::{SignedDuration, Timestamp};
use refit_rollout::{AttemptEnd, Decision, HostTransition};
use refit_types::{HostId, HostRecord, Version};

use super::World;
use super::invariants::{AWAY, Held, PAUSES, hold};
use super::server::{Commit, Server};
use crate::model::{Settings, after};

const POLLING: i64 = 600;
const SETTLES: i64 = 900;

/// A host that was told to go.
#[derive(Debug, Clone)]
pub struct Flight {
    attempt: u64,
    version: Version,
    epoch: u64,
    told_at: Timestamp,
    /// For how long nobody might go meanwhile, as far as servers had the time to notice.
    waited: SignedDuration,
    stop: Option<Stop>,
}

/// A time in which nobody might go.
#[derive(Debug, Clone, Copy)]
struct Stop {
    since: Timestamp,
    /// When operators ended it.
    until: Option<Timestamp>,
}

impl Stop {
    fn length(self) -> SignedDuration {
        let length = self.until.map_or(SignedDuration::ZERO, |until| until.duration_since(self.since));
        length.max(SignedDuration::ZERO)
    }
}

impl Flight {
    /// Whether the host has told how it ended.
    fn is_reported(&self, settings: &Settings, host: &HostRecord) -> bool {
        let Some(report) = &host.report else { return false };
        let mut told = Vec::new();
        if let Some(updater) = &report.updater {
            told.extend(updater.last_failure.as_ref().map(|failure| failure.attempt));
            told.extend(updater.called_off.as_ref().map(|target| target.attempt));
            told.extend(updater.held_target.as_ref().map(|target| target.attempt));
        }
        let is_there = report.version == self.version && !crate::model::is_on_trial(host);
        is_there || told.contains(&self.attempt) || settings.is_held(host)
    }

    /// How long the host may take, by the terms of the group that it is in now.
    fn allowed(&self, settings: &Settings, host: &HostRecord) -> Option<i64> {
        let group = settings.group(settings.group_of(host)?);
        let own = i64::from(group.jitter_seconds) + i64::from(group.timeout_seconds);
        Some(own + if self.is_acknowledged(host) { 0 } else { POLLING })
    }

    fn is_acknowledged(&self, host: &HostRecord) -> bool {
        host.report.as_ref().is_some_and(|report| report.hint_acknowledged == self.attempt)
    }

    /// Whether the host may be away at that moment.
    fn is_away(&self, settings: &Settings, host: &HostRecord, now: Timestamp) -> bool {
        let Some(allowed) = self.allowed(settings, host) else { return false };
        let deadline = after(self.told_at, allowed) + self.waited;
        let is_earlier = self.epoch < settings.rollout.epoch;
        let is_long_ago = is_earlier && after(settings.rollout.began_at, SETTLES) <= now;
        now < deadline && !is_long_ago && !self.is_reported(settings, host)
    }

    /// Whether the host is not waited for any more after that transition.
    fn is_over(
        &self,
        settings: &Settings,
        host: &HostRecord,
        transition: HostTransition,
        now: Timestamp,
    ) -> bool {
        let is_ended = matches!(transition, HostTransition::Finish(_));
        let is_unknown = transition == HostTransition::Revoke && !self.is_acknowledged(host);
        is_ended || is_unknown || !self.is_away(settings, host, now)
    }
}

impl World {
    /// Whoever starts hosts has counted all that may be away, whatever is stored of them.
    pub fn nobody_is_away_uncounted(&self, server: &Server, decision: &Decision, now: Timestamp) -> Held {
        let (records, settings) = (&self.store.records, self.settings());
        let name = settings.groups()[decision.group].name.as_str();
        let is_start =
            |transition| matches!(transition, HostTransition::Start | HostTransition::StartNewcomer);
        let starts = decision.transitions.iter().filter(|planned| is_start(planned.transition)).count();
        if starts == 0 || !server.is_up_to_date(&self.store) {
            return Ok(());
        }
        let is_away = |(id, flight): &(&HostId, &Flight)| {
            let planned = decision.transitions.iter().find(|planned| planned.host == **id);
            let is_changed = |host: &HostRecord| {
                planned.is_some_and(|planned| {
                    is_start(planned.transition) || flight.is_over(settings, host, planned.transition, now)
                })
            };
            records.host_record(**id).is_some_and(|host| {
                settings.group_of(host) == Some(name)
                    && flight.is_away(settings, host, now)
                    && !is_changed(host)
            })
        };
        let away = self.flights.iter().filter(is_away).count();
        let limit = settings.limit(name, decision.record.members) as usize;
        hold!(
            AWAY,
            away + starts <= limit,
            "{name}: {starts} start, {away} may be away, limit {limit}, at {now}"
        );
        Ok(())
    }

    /// A transaction was stored: who was told to go, and who is not waited for any more.
    pub fn note_flights(&mut self, commit: &Commit) -> Held {
        let (settings, now) = (self.store.records.settings().clone(), commit.decided_at);
        for planned in &commit.decision.transitions {
            let Some(host) = self.store.records.host_record(planned.host).cloned() else { continue };
            if planned.transition == HostTransition::Finish(AttemptEnd::TimedOut) {
                self.no_pause_is_counted(&settings, &host, now)?;
            }
            if matches!(planned.transition, HostTransition::Start | HostTransition::StartNewcomer) {
                let flight = Flight {
                    attempt: host.upgrade.as_ref().map_or(0, |upgrade| upgrade.attempt),
                    version: settings.rollout.version.clone(),
                    epoch: settings.rollout.epoch,
                    told_at: now,
                    waited: SignedDuration::ZERO,
                    stop: None,
                };
                self.flights.insert(planned.host, flight);
                let updater = host.report.as_ref().and_then(|report| report.updater.as_ref());
                if updater.is_some_and(|updater| updater.held.is_some()) {
                    *self.tally.entry("Start despite another hold".into()).or_default() += 1;
                }
            } else if let Some(flight) = self.flights.get(&planned.host)
                && flight.is_over(&settings, &host, planned.transition, now)
            {
                self.flights.remove(&planned.host);
            }
        }
        Ok(())
    }

    /// A host has timed out only if it had its time, without that in which nobody might go.
    fn no_pause_is_counted(&self, settings: &Settings, host: &HostRecord, now: Timestamp) -> Held {
        let Some(flight) = self.flights.get(&host.host_id) else { return Ok(()) };
        let Some(allowed) = flight.allowed(settings, host) else { return Ok(()) };
        let waited = flight.waited + flight.stop.map_or(SignedDuration::ZERO, Stop::length);
        let (told, deadline) = (flight.told_at, after(flight.told_at, allowed) + waited);
        hold!(
            PAUSES,
            deadline <= now,
            "{}: told at {told}, has {allowed} s and waited {waited:#}, and timed out at {now}",
            host.host_id
        );
        Ok(())
    }

    /// Whether nobody may go in the host's group; none if it is under way to an earlier version, or in no group.
    fn is_stopped(&self, id: HostId) -> Option<bool> {
        let (records, settings) = (&self.store.records, self.settings());
        let host = records.host_record(id)?;
        let is_here = settings.has_slot(host) && !settings.is_carried(host);
        let record = records.group(settings.group_of(host).filter(|_| is_here)?);
        Some(settings.is_stopped(&record))
    }

    /// Operators have done something: a time in which nobody might go may be over.
    pub fn note_resumed(&mut self) {
        let now = self.now;
        for id in self.ids.clone() {
            let is_stopped = self.is_stopped(id);
            if let Some(flight) = self.flights.get_mut(&id) {
                match is_stopped {
                    None => flight.stop = None,
                    Some(true) => {}
                    Some(false) => {
                        flight.stop =
                            flight.stop.map(|stop| Stop { until: stop.until.or(Some(now)), ..stop });
                    }
                }
            }
        }
    }

    /// All servers with right clocks have done what is due: they know whether anybody may go.
    pub fn note_waiting(&mut self) {
        let now = self.now;
        for id in self.ids.clone() {
            let is_stopped = self.is_stopped(id);
            let Some(flight) = self.flights.get_mut(&id) else { continue };
            let known = flight.stop.filter(|stop| stop.until.is_none());
            // A server with a fast clock has told it later than now.
            let since = now.max(flight.told_at);
            match is_stopped {
                Some(true) => flight.stop = known.or(Some(Stop { since, until: None })),
                Some(false) => {
                    flight.waited += flight.stop.take().map_or(SignedDuration::ZERO, Stop::length);
                }
                None => flight.stop = None,
            }
        }
    }

    /// Clocks differ: how long anybody waited depends on whom one asks.
    pub fn forget_waiting(&mut self) {
        for flight in self.flights.values_mut() {
            (flight.waited, flight.stop) = (SignedDuration::ZERO, None);
        }
    }
}
