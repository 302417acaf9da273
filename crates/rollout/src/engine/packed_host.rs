//! The engine's state of one host, packed into 40 bytes, and the phase of its upgrade that follows from it.

use refit_types::{HostId, Revision};

use crate::micros::Micros;
use crate::{HostFacts, HostOutcome};

/// A host's facts, packed: the engine keeps one for each host of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedHost {
    /// The revision of its record: a decision about it is valid only while that is current.
    pub(crate) revision: Revision,
    pub(crate) attempt: u64,
    /// `Micros::NEVER` for not started.
    started: Micros,
    /// `Micros::NEVER` for connected.
    lost_since: Micros,
    /// The round in which it failed or timed out.
    round: u32,
    group: u16,
    flags: u16,
}

const MEMBER: u16 = 1;
const ON_VERSION: u16 = 1 << 1;
const HELD: u16 = 1 << 2;
const ACKNOWLEDGED: u16 = 1 << 3;
const UNDONE: u16 = 1 << 4;
const PROVING: u16 = 1 << 5;
const UNREADABLE: u16 = 1 << 6;
const NEWCOMER: u16 = 1 << 7;
const CARRIED: u16 = 1 << 8;
const SETTLED: u16 = 1 << 9;
const CALLED_OFF: u16 = 1 << 13;
const SUSPENDED: u16 = 1 << 14;
/// How it ended: one of these, or none.
const UPGRADED: u16 = 1 << 10;
const FAILED: u16 = 1 << 11;
const TIMED_OUT: u16 = 1 << 12;
const ENDED: u16 = UPGRADED | FAILED | TIMED_OUT;

const NO_GROUP: u16 = u16::MAX;

/// The phase of a host's upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostPhase {
    /// It is connected, and becomes a member when the group opens. Until then it may be able to start.
    Newcomer { could_start: bool },
    /// It is no member, and has been disconnected since then.
    Absent(Micros),
    /// It could start.
    Ready,
    /// Its updater refuses the version.
    Held,
    /// It has not started, and has been disconnected since then.
    Away(Micros),
    /// It was told to upgrade, with this deadline.
    Flying(Micros),
    /// It was told in an earlier epoch, and has a slot until it settles, or until then.
    Carried(Micros),
    /// Its result is known and not stored yet.
    Ended,
    /// It failed or timed out in this round.
    Unsuccessful,
    /// Nothing more is to be done about it.
    Settled,
    /// Its record cannot be read: nothing is decided about it, and it keeps its slot if it has one.
    Unreadable,
}

/// The times that decide when a host in flight has failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    pub(crate) timeout: Micros,
    pub(crate) lost: Micros,
}

impl Deadlines {
    pub(crate) fn first(self) -> Micros {
        self.timeout.min(self.lost)
    }
}

impl PackedHost {
    pub(crate) fn of(facts: &HostFacts, revision: Revision) -> Self {
        let (ended, round) = match facts.ended {
            None => (0, 0),
            Some(HostOutcome::Upgraded) => (UPGRADED, 0),
            Some(HostOutcome::Failed { round }) => (FAILED, round),
            Some(HostOutcome::TimedOut { round }) => (TIMED_OUT, round),
        };
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let group = facts.group.and_then(|group| u16::try_from(group).ok()).unwrap_or(NO_GROUP);
        Self {
            revision,
            attempt: facts.attempt,
            started: facts.started.map_or(Micros::NEVER, Micros::from),
            lost_since: facts.lost_since.map_or(Micros::NEVER, Micros::from),
            round,
            group,
            flags: flag(facts.member, MEMBER)
                | flag(facts.on_version, ON_VERSION)
                | flag(facts.held, HELD)
                | flag(facts.acknowledged, ACKNOWLEDGED)
                | flag(facts.undone, UNDONE)
                | flag(facts.called_off, CALLED_OFF)
                | flag(facts.suspended, SUSPENDED)
                | flag(facts.proving, PROVING)
                | flag(facts.newcomer, NEWCOMER)
                | flag(facts.carried, CARRIED)
                | flag(facts.settled, SETTLED)
                | ended,
        }
    }

    pub(crate) fn facts(&self, host: HostId) -> HostFacts {
        HostFacts {
            host,
            group: self.group(),
            member: self.is_member(),
            newcomer: self.is_newcomer(),
            carried: self.carried(),
            settled: self.is(SETTLED),
            started: self.started().and_then(Micros::timestamp),
            ended: self.ended(),
            attempt: self.attempt,
            on_version: self.on_version(),
            proving: self.proving(),
            held: self.held(),
            acknowledged: self.acknowledged(),
            undone: self.is(UNDONE),
            called_off: self.is(CALLED_OFF),
            suspended: self.suspended(),
            lost_since: self.lost_since().and_then(Micros::timestamp),
        }
    }

    pub(crate) fn group(&self) -> Option<usize> {
        (self.group != NO_GROUP).then_some(self.group.into())
    }

    pub(crate) fn on_version(&self) -> bool {
        self.is(ON_VERSION)
    }

    pub(crate) fn proving(&self) -> bool {
        self.is(PROVING)
    }

    pub(crate) fn held(&self) -> bool {
        self.is(HELD)
    }

    /// Whether it is connected and could have the version, and does not.
    pub(crate) fn is_behind(&self) -> bool {
        !self.on_version() && !self.held() && self.lost_since().is_none()
    }

    pub(crate) fn acknowledged(&self) -> bool {
        self.is(ACKNOWLEDGED)
    }

    /// Whether its deadline is to move by the time for which hosts were stopped.
    pub(crate) fn suspended(&self) -> bool {
        self.is(SUSPENDED)
    }

    pub(crate) fn undone(&self) -> bool {
        self.is(UNDONE)
    }

    pub(crate) fn started(&self) -> Option<Micros> {
        (self.started != Micros::NEVER).then_some(self.started)
    }

    pub(crate) fn lost_since(&self) -> Option<Micros> {
        (self.lost_since != Micros::NEVER).then_some(self.lost_since)
    }

    pub(crate) fn ended(&self) -> Option<HostOutcome> {
        match self.flags & ENDED {
            UPGRADED => Some(HostOutcome::Upgraded),
            FAILED => Some(HostOutcome::Failed { round: self.round }),
            TIMED_OUT => Some(HostOutcome::TimedOut { round: self.round }),
            _ => None,
        }
    }

    /// Whether it has a slot of its group.
    pub(crate) fn is_flying(&self) -> bool {
        (self.is_member() || self.is_newcomer()) && self.flags & ENDED == 0 && self.started().is_some()
    }

    pub(crate) fn is_member(&self) -> bool {
        self.is(MEMBER)
    }

    /// Whether it was told to upgrade in this epoch before it became a member.
    pub(crate) fn is_newcomer(&self) -> bool {
        self.is(NEWCOMER)
    }

    /// Whether its start is of an earlier epoch.
    pub(crate) fn carried(&self) -> bool {
        self.is(CARRIED)
    }

    /// Whether it was told in an earlier epoch, has not settled, and has no slot in this one yet.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.carried() && !self.is_member() && !self.is_newcomer()
    }

    /// The host's phase in that round of its group. `deadlines` is called only for a host in flight, and `settles_by`
    /// only for one that was told in an earlier epoch.
    pub(crate) fn phase(
        &self,
        round: u32,
        deadlines: impl FnOnce(&Self, Micros) -> Deadlines,
        settles_by: impl FnOnce(&Self, Micros) -> Micros,
    ) -> HostPhase {
        if self.is_unreadable() {
            return HostPhase::Unreadable;
        }
        let flies_since = self.started().filter(|_| self.is_flying());
        if !self.is_member() && flies_since.is_none() {
            let could_start = !self.on_version() && !self.held() && self.ended().is_none();
            return self.lost_since().map_or(HostPhase::Newcomer { could_start }, HostPhase::Absent);
        }
        match self.ended() {
            Some(HostOutcome::Upgraded) => return HostPhase::Settled,
            _ if self.carried() && flies_since.is_some() => {
                let until = flies_since.filter(|_| !self.is(SETTLED)).map(|since| settles_by(self, since));
                return until.map_or(HostPhase::Ended, HostPhase::Carried);
            }
            _ if self.on_version() => return HostPhase::Ended,
            Some(HostOutcome::Failed { round: then } | HostOutcome::TimedOut { round: then })
                if then >= round =>
            {
                return HostPhase::Unsuccessful;
            }
            _ => {}
        }
        match flies_since {
            Some(_) if self.undone() || self.held() || self.is(CALLED_OFF) => HostPhase::Ended,
            Some(started) => HostPhase::Flying(deadlines(self, started).first()),
            None if self.held() => HostPhase::Held,
            None => self.lost_since().map_or(HostPhase::Ready, HostPhase::Away),
        }
    }

    /// The same host, from a record of that revision.
    pub(crate) fn at(self, revision: Revision) -> Self {
        Self { revision, ..self }
    }

    /// The same host with a record that cannot be read any more, in the group that it was last known in.
    pub(crate) fn unreadable(self, group: Option<usize>) -> Self {
        let group = group.and_then(|group| u16::try_from(group).ok()).unwrap_or(NO_GROUP);
        Self { flags: self.flags | UNREADABLE, group, ..self }
    }

    /// A host of which nothing was ever read.
    pub(crate) fn unknown() -> Self {
        Self {
            revision: Revision::default(),
            attempt: 0,
            started: Micros::NEVER,
            lost_since: Micros::NEVER,
            round: 0,
            group: NO_GROUP,
            flags: 0,
        }
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.is(UNREADABLE)
    }

    fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}
