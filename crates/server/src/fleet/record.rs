//! How heartbeats and disconnects change a host's record. Pure functions: the caller writes the result.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_types::{HostRecord, PastUpdate, Report, UnknownFields};
use uuid::Uuid;

/// The precision of a stored `last_seen`. Each host costs one write in this time when nothing changes.
pub(crate) const SEEN_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How long after the last report of a second process a host counts as a duplicate.
const DUPLICATE_FOR: Duration = Duration::from_secs(10 * 60);
/// The precision of that time.
const DUPLICATE_WITHIN: Duration = Duration::from_secs(60);
/// Past updates that are kept of a host, and the length of a failure's reason.
const MOST_PAST: usize = 8;
const LONGEST_FAILURE: usize = 200;
/// Hosts that have been disconnected for this long are removed.
const FORGET_AFTER: Duration = Duration::from_secs(30 * 86_400);

/// The contents of a heartbeat.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeat {
    pub(crate) hostname: Box<str>,
    pub(crate) report: Report,
    /// When the certificate of its connection expires.
    pub(crate) identity_expires: Option<Timestamp>,
}

/// The record after a heartbeat that `server` received, if it must be written.
pub(crate) fn after_heartbeat(
    known: &HostRecord,
    heartbeat: &Heartbeat,
    server: &str,
    now: Timestamp,
) -> Option<HostRecord> {
    if is_superseded(known, heartbeat) {
        let noted = known.duplicate_at.is_some_and(|at| !passed(at, DUPLICATE_WITHIN, now));
        return (!noted).then(|| HostRecord { duplicate_at: Some(now), ..known.clone() });
    }
    let duplicate_at = known.duplicate_at.filter(|at| !passed(*at, DUPLICATE_FOR, now));
    let identity_expires = heartbeat.identity_expires.or(known.identity_expires);
    let unchanged = known.report.as_ref() == Some(&heartbeat.report)
        && known.hostname == heartbeat.hostname
        && known.server.as_deref() == Some(server)
        && known.duplicate_at == duplicate_at
        && known.identity_expires == identity_expires;
    if unchanged && !passed(known.last_seen, SEEN_WITHIN, now) {
        return None;
    }
    Some(HostRecord {
        hostname: heartbeat.hostname.clone(),
        last_seen: now,
        report: Some(heartbeat.report.clone()),
        server: Some(server.into()),
        duplicate_at,
        identity_expires,
        past: past_after(known, &heartbeat.report, now),
        ..known.clone()
    })
}

/// The past updates, including one that this report completes.
fn past_after(known: &HostRecord, report: &Report, now: Timestamp) -> Box<[PastUpdate]> {
    let Some(before) = &known.report else { return known.past.clone() };
    let failure = |report: &Report| report.updater.as_ref()?.version_failure().cloned();
    let told = if before.version != report.version {
        let (from, to) = (before.version.clone(), report.version.clone());
        Some(PastUpdate { at: now, from, to, failure: None, unknown: UnknownFields::default() })
    } else {
        failure(report).filter(|new| failure(before).as_ref() != Some(new)).map(|failed| {
            let why = format!("{}: {}", failed.step, failed.reason);
            let why: String = why.chars().take(LONGEST_FAILURE).collect();
            let (from, to) = (report.version.clone(), failed.version);
            PastUpdate {
                at: failed.at,
                from,
                to,
                failure: Some(why.into()),
                unknown: UnknownFields::default(),
            }
        })
    };
    match told {
        None => known.past.clone(),
        Some(told) => {
            let kept = known.past.len().saturating_sub(MOST_PAST - 1);
            known.past[kept..].iter().cloned().chain([told]).collect()
        }
    }
}

/// Whether a process that started later has reported as this host, so that two are running.
pub(crate) fn is_superseded(known: &HostRecord, heartbeat: &Heartbeat) -> bool {
    let ours = &heartbeat.report.session;
    let recorded = known.report.as_ref().map(|report| &report.session);
    recorded.is_some_and(|session| session.id != ours.id && session.started_at > ours.started_at)
}

/// The record after the connection of that session to `server` ended, if it must be written.
pub(crate) fn after_departure(
    known: &HostRecord,
    session: Uuid,
    server: &str,
    now: Timestamp,
) -> Option<HostRecord> {
    let is_its_own = known.report.as_ref().is_some_and(|report| report.session.id == session);
    (is_its_own && known.server.as_deref() == Some(server)).then(|| HostRecord {
        server: None,
        last_seen: now,
        ..known.clone()
    })
}

/// Whether the host has been away for so long that it no longer belongs to the fleet.
pub(crate) fn is_forgotten(known: &HostRecord, now: Timestamp) -> bool {
    passed(known.last_seen, FORGET_AFTER, now)
}

fn passed(since: Timestamp, length: Duration, now: Timestamp) -> bool {
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    now.duration_since(since) > length
}

#[cfg(test)]
mod tests {
    use refit_testbed::{lost_newer_fields, with_newer_fields};
    use refit_types::{
        AgentRole, Edition, RotationMark, Session, UpdateFailure, UpdaterStatus, UpgraderKind,
    };

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn drawn(name: &str) -> Uuid {
        Uuid::from_u128(name.bytes().map(u128::from).sum())
    }

    fn host() -> HostRecord {
        let id = "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55".parse().unwrap();
        HostRecord::joined(id, "web-1", vec![AgentRole::Node], at(0))
    }

    fn beat(session: &str, started: i64, version: &str) -> Heartbeat {
        Heartbeat {
            identity_expires: None,
            hostname: "web-1".into(),
            report: Report {
                version: version.parse().unwrap(),
                edition: Edition::Oss.into(),
                node_labels: Default::default(),
                instance_labels: Default::default(),
                upgrader: UpgraderKind::Binary.into(),
                updater: None,
                session: Session { id: drawn(session), started_at: at(started) },
                rotation: RotationMark::default(),
                hint_acknowledged: 0,
                platform: None,
            },
        }
    }

    #[test]
    fn only_changes_are_written_and_the_time_now_and_then() {
        let first = after_heartbeat(&host(), &beat("a", 0, "1.0.0"), "s1", at(10)).unwrap();
        assert_eq!((first.server.as_deref(), first.last_seen), (Some("s1"), at(10)));
        assert_eq!(after_heartbeat(&first, &beat("a", 0, "1.0.0"), "s1", at(40)), None);
        assert!(after_heartbeat(&first, &beat("a", 0, "1.0.1"), "s1", at(40)).is_some(), "a new version");
        assert!(after_heartbeat(&first, &beat("a", 0, "1.0.0"), "s2", at(40)).is_some(), "another server");
        let later = after_heartbeat(&first, &beat("a", 0, "1.0.0"), "s1", at(1000)).unwrap();
        assert_eq!(later, HostRecord { last_seen: at(1000), ..first });
    }

    #[test]
    fn the_last_updates_are_kept_with_those_that_failed() {
        let mut host = after_heartbeat(&host(), &beat("a", 0, "1.0.0"), "s1", at(10)).unwrap();
        assert!(host.past.is_empty(), "the first report tells of no update");
        let mut failing = beat("a", 0, "1.0.0");
        let failure = UpdateFailure {
            attempt: 1,
            version: "1.0.1".parse().unwrap(),
            step: "health".into(),
            reason: "x".repeat(1000),
            at: at(15),
            agent: None,
        };
        failing.report.updater =
            Some(Box::new(UpdaterStatus { last_failure: Some(failure), ..UpdaterStatus::default() }));
        host = after_heartbeat(&host, &failing, "s1", at(20)).unwrap();
        assert_eq!((host.past.len(), host.past[0].at), (1, at(15)));
        let why = host.past[0].failure.as_deref().unwrap();
        assert!(why.starts_with("health: xxx") && why.len() == LONGEST_FAILURE, "{why}");
        host = after_heartbeat(&host, &failing, "s2", at(25)).unwrap();
        assert_eq!(host.past.len(), 1, "told once");
        for patch in 1..=12 {
            let beat = beat("a", 0, &format!("1.0.{patch}"));
            host = after_heartbeat(&host, &beat, "s1", at(30 + patch)).unwrap();
        }
        assert_eq!(host.past.len(), MOST_PAST);
        let last = host.past.last().unwrap();
        let told = (last.from.to_string(), last.to.to_string(), last.at, last.failure.as_deref());
        assert_eq!(told, ("1.0.11".into(), "1.0.12".into(), at(42), None));
    }

    #[test]
    fn what_a_newer_server_wrote_survives_every_change() {
        let failure = |reason: &str| {
            let version = "1.0.9".parse().unwrap();
            let failure = UpdateFailure {
                attempt: 1,
                version,
                step: "health".into(),
                reason: reason.into(),
                at: at(5),
                agent: None,
            };
            let status = UpdaterStatus { last_failure: Some(failure), ..UpdaterStatus::default() };
            Some(Box::new(status))
        };
        let mut host = host();
        for patch in 0..=MOST_PAST as i64 {
            let mut beat = beat("a", 0, &format!("1.0.{patch}"));
            beat.report.updater = failure("died");
            host = after_heartbeat(&host, &beat, "s1", at(patch)).unwrap();
        }
        assert_eq!(host.past.len(), MOST_PAST);
        let before = with_newer_fields(&serde_json::to_value(&host).unwrap());
        let host: HostRecord = serde_json::from_value(before.clone()).unwrap();

        let mut same = beat("a", 0, &format!("1.0.{MOST_PAST}"));
        same.report.updater = failure("died");
        assert_eq!(after_heartbeat(&host, &same, "s1", at(20)), None, "nothing is new to this server");
        let (mut other, mut failed) = (beat("b", 20, "2.0.0"), same.clone());
        other.report.updater = failure("died again");
        failed.report.updater = failure("died again");
        let changes = [
            after_heartbeat(&host, &same, "s2", at(20)),
            after_heartbeat(&host, &beat("c", -5, "1.0.0"), "s1", at(20)),
            after_departure(&host, drawn("a"), "s1", at(20)),
        ];
        for changed in changes {
            let after = serde_json::to_value(changed.unwrap()).unwrap();
            assert_eq!(lost_newer_fields(&before, &after), [""; 0], "{after}");
        }
        for beat in [other, failed] {
            let mut after =
                serde_json::to_value(after_heartbeat(&host, &beat, "s1", at(20)).unwrap()).unwrap();
            let past = after["past"].as_array_mut().unwrap();
            assert!(past.pop().unwrap().get("newer").is_none(), "the new one has what this server wrote");
            let mut before = before.clone();
            before["past"].as_array_mut().unwrap().remove(0);
            assert_eq!(lost_newer_fields(&before, &after), [""; 0], "{after}");
        }
    }

    #[test]
    fn a_restarted_agent_takes_over_and_a_second_one_is_noticed() {
        let first = after_heartbeat(&host(), &beat("a", 0, "1.0.0"), "s1", at(10)).unwrap();
        let restarted = after_heartbeat(&first, &beat("b", 20, "1.0.1"), "s1", at(25)).unwrap();
        assert_eq!(
            (restarted.report.as_ref().unwrap().session.id, restarted.duplicate_at),
            (drawn("b"), None)
        );

        let twice = after_heartbeat(&restarted, &beat("a", 0, "1.0.0"), "s2", at(40)).unwrap();
        assert_eq!(twice.duplicate_at, Some(at(40)));
        assert_eq!(twice.report, restarted.report, "the older one changes nothing else");
        assert_eq!(
            after_heartbeat(&twice, &beat("a", 0, "1.0.0"), "s2", at(70)),
            None,
            "and not at every beat"
        );
        assert_eq!(after_heartbeat(&twice, &beat("b", 20, "1.0.1"), "s1", at(80)), None);
        let over = after_heartbeat(&twice, &beat("b", 20, "1.0.1"), "s1", at(40 + 601)).unwrap();
        assert_eq!(over.duplicate_at, None);
    }

    #[test]
    fn only_its_own_connection_ends_a_hosts_liveness() {
        let first = after_heartbeat(&host(), &beat("a", 0, "1.0.0"), "s1", at(10)).unwrap();
        assert_eq!(after_departure(&first, drawn("a"), "s2", at(50)), None);
        assert_eq!(after_departure(&first, drawn("z"), "s1", at(50)), None);
        let gone = after_departure(&first, drawn("a"), "s1", at(50)).unwrap();
        assert_eq!((gone.server, gone.last_seen), (None, at(50)));
        assert!(!is_forgotten(&first, at(86_400 * 30)) && is_forgotten(&first, at(86_400 * 30 + 11)));
    }
}
