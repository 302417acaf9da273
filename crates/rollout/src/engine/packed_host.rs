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
    flags: u8,
    ended: u8,
}

const MEMBER: u8 = 1;
const ON_VERSION: u8 = 1 << 1;
const HELD: u8 = 1 << 2;
const ACKNOWLEDGED: u8 = 1 << 3;
const UNDONE: u8 = 1 << 4;
const PROVING: u8 = 1 << 5;
const UNREADABLE: u8 = 1 << 6;

const NO_GROUP: u16 = u16::MAX;

/// The phase of a host's upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostPhase {
    /// It is connected, and becomes a member when the group opens.
    Newcomer,
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
            Some(HostOutcome::Upgraded) => (1, 0),
            Some(HostOutcome::Failed { round }) => (2, round),
            Some(HostOutcome::TimedOut { round }) => (3, round),
        };
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
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
                | flag(facts.proving, PROVING),
            ended,
        }
    }

    pub(crate) fn facts(&self, host: HostId) -> HostFacts {
        HostFacts {
            host,
            group: self.group(),
            member: self.is(MEMBER),
            started: self.started().and_then(Micros::timestamp),
            ended: self.ended(),
            attempt: self.attempt,
            on_version: self.on_version(),
            proving: self.proving(),
            held: self.held(),
            acknowledged: self.acknowledged(),
            undone: self.is(UNDONE),
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

    pub(crate) fn acknowledged(&self) -> bool {
        self.is(ACKNOWLEDGED)
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
        match self.ended {
            1 => Some(HostOutcome::Upgraded),
            2 => Some(HostOutcome::Failed { round: self.round }),
            3 => Some(HostOutcome::TimedOut { round: self.round }),
            _ => None,
        }
    }

    pub(crate) fn is_flying(&self) -> bool {
        self.ended == 0 && self.started().is_some()
    }

    /// The host's phase in that round of its group. `deadlines` is called only for a host in flight.
    pub(crate) fn phase(&self, round: u32, deadlines: impl FnOnce(&Self, Micros) -> Deadlines) -> HostPhase {
        if self.is_unreadable() {
            return HostPhase::Unreadable;
        }
        if !self.is(MEMBER) {
            return self.lost_since().map_or(HostPhase::Newcomer, HostPhase::Absent);
        }
        match self.ended() {
            Some(HostOutcome::Upgraded) => return HostPhase::Settled,
            _ if self.on_version() => return HostPhase::Ended,
            Some(HostOutcome::Failed { round: then } | HostOutcome::TimedOut { round: then })
                if then >= round =>
            {
                return HostPhase::Unsuccessful;
            }
            _ => {}
        }
        match (self.is_flying(), self.started()) {
            (true, Some(_)) if self.undone() || self.held() => HostPhase::Ended,
            (true, Some(started)) => {
                let deadlines = deadlines(self, started);
                HostPhase::Flying(deadlines.first())
            }
            _ if self.held() => HostPhase::Held,
            _ => self.lost_since().map_or(HostPhase::Ready, HostPhase::Away),
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
            ended: 0,
        }
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.is(UNREADABLE)
    }

    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
