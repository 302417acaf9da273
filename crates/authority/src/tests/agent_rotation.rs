//! An agent that follows a rotation, whatever it misses and wherever it is killed.

use std::collections::BTreeSet;

use proptest::prelude::*;
use refit_identity::{
    AgentState, Authorities, CaPin, Certificate, Identity, IdentitySlot, Phase, Step, StoredIdentities,
    next_step,
};

use super::rotation::advance;
use super::{authority, host_at, noon, server_at};
use crate::Authority;

/// A host and what it has on its disk.
#[derive(Default)]
struct Host {
    disk: StoredIdentities,
}

/// How a host's attempt to follow ended.
#[derive(Debug, PartialEq)]
enum End {
    Settled,
    Killed,
    CutOff,
}

enum Write {
    Identity(IdentitySlot, Box<Identity>),
    State(AgentState),
}

impl Host {
    /// Writes one after the other until killed.
    fn write(&mut self, writes: Vec<Write>, left: &mut usize) -> Result<(), End> {
        for write in writes {
            if *left == 0 {
                return Err(End::Killed);
            }
            *left -= 1;
            match write {
                Write::Identity(IdentitySlot::Current, identity) => self.disk.current = Some(*identity),
                Write::Identity(IdentitySlot::Replacement, identity) => {
                    self.disk.replacement = Some(*identity)
                }
                // As it is read back after a restart.
                Write::State(state) => {
                    self.disk.state = AgentState::from_json(state.to_json().unwrap().as_bytes()).unwrap();
                }
            }
        }
        Ok(())
    }

    /// Does what the server says until there is nothing left to do, or `writes` have been made.
    fn follow(&mut self, authority: &Authority, mut writes: usize) -> End {
        for _ in 0..5 {
            if !self.disk.candidates().any(|(_, identity)| can_speak(identity, authority)) {
                return End::CutOff;
            }
            let todo = match next_step(&self.disk, &authority.authorities()).unwrap() {
                Step::Nothing => return End::Settled,
                Step::Note { state } => vec![Write::State(state)],
                Step::Rewrite { slot, identity, state } => {
                    vec![Write::Identity(slot, identity), Write::State(state)]
                }
                Step::Promote { identity, state } => {
                    vec![Write::Identity(IdentitySlot::Current, identity), Write::State(state)]
                }
                Step::Request { into } => {
                    let identity = host_at(authority, into.as_str(), noon());
                    vec![Write::Identity(into, Box::new(identity))]
                }
                Step::Rejoin => panic!("a server that trusts a host has something for it"),
            };
            if let Err(end) = self.write(todo, &mut writes) {
                return end;
            }
        }
        panic!("no end of steps");
    }

    fn join(&mut self, authority: &Authority, mut writes: usize) -> End {
        let identity = host_at(authority, "current", noon());
        let todo = vec![Write::Identity(IdentitySlot::Current, Box::new(identity))];
        self.write(todo, &mut writes).map_or_else(|end| end, |()| self.follow(authority, writes))
    }
}

/// Whether both sides of a connection believe each other.
fn can_speak(identity: &Identity, authority: &Authority) -> bool {
    let chain = [identity.certificate().der().clone()];
    let (_, server) = server_at(authority, noon());
    authority.trust().unwrap().verify_client(&chain, noon()).is_ok()
        && identity.authorities().iter().any(|trusted| server.is_signed_by(trusted))
}

fn pins<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> BTreeSet<CaPin> {
    certificates.into_iter().map(CaPin::of).collect()
}

/// What the host presents, trusts and stores is what the phase allows.
fn check_settled(host: &Host, authority: &Authority) {
    let disk = &host.disk;
    let active = disk.active().unwrap();
    assert!(can_speak(active, authority));
    assert!(active.certificate().is_signed_by(authority.certificate()));
    assert_eq!(active.authorities(), authority.certificates().cloned().collect::<Vec<_>>());
    assert_eq!(active.ssh_authorities(), authority.ssh_authorities().collect::<Vec<_>>());
    assert_eq!(disk.state.phase, authority.phase());
    assert_eq!(disk.state.rotation_id, authority.authorities().rotation_id);
    assert_eq!(active.name(), disk.active_slot().as_str());
    if !matches!(authority.phase(), Phase::UpdateClients | Phase::UpdateServers) {
        assert_eq!(disk.active_slot(), IdentitySlot::Current);
    }
}

fn settled_at(authority: &Authority) -> Host {
    let mut host = Host::default();
    assert_eq!(host.join(authority, usize::MAX), End::Settled);
    check_settled(&host, authority);
    host
}

fn walk(from: &Authority, host: &mut Host, phases: &[Phase]) -> Authority {
    phases.iter().fold(from.clone(), |authority, phase| {
        let authority = advance(&authority, *phase);
        assert_eq!(host.follow(&authority, usize::MAX), End::Settled, "{phase}");
        check_settled(host, &authority);
        authority
    })
}

#[test]
fn the_new_identity_waits_until_the_rotation_ends() {
    use Phase::*;
    let old = authority("prod");
    let mut host = settled_at(&old);
    let first = host.disk.current.clone().unwrap();
    let init = walk(&old, &mut host, &[Init]);
    assert_eq!(host.disk.current.as_ref().unwrap().certificate(), first.certificate());
    assert_eq!(host.disk.current.as_ref().unwrap().authorities().len(), 2);
    assert!(host.disk.replacement.is_none());

    let updated = walk(&init, &mut host, &[UpdateClients, UpdateServers]);
    let replacement = host.disk.replacement.clone().unwrap();
    assert_eq!(host.disk.current.as_ref().unwrap().certificate(), first.certificate());
    assert!(!replacement.key().belongs_to(first.certificate()), "the key is new too");
    assert_eq!(host.disk.active_slot(), IdentitySlot::Replacement);

    let done = walk(&updated, &mut host, &[Standby]);
    let current = host.disk.current.as_ref().unwrap();
    assert_eq!(current.certificate(), replacement.certificate());
    assert_eq!(current.authorities(), [done.certificate().clone()]);
    assert!(!can_speak(&first, &done));
}

#[test]
fn a_rollback_brings_the_old_identity_back() {
    use Phase::*;
    for middle in [&[Init][..], &[Init, UpdateClients], &[Init, UpdateClients, UpdateServers]] {
        let old = authority("prod");
        let mut host = settled_at(&old);
        let first = host.disk.current.clone().unwrap();
        let rolled = walk(&walk(&old, &mut host, middle), &mut host, &[Rollback]);
        assert_eq!(host.disk.active().unwrap().certificate(), first.certificate());
        walk(&rolled, &mut host, &[Standby]);
        assert_eq!(host.disk.current.unwrap().to_json().unwrap(), first.to_json().unwrap());
        if let Some(replacement) = &host.disk.replacement {
            assert!(!can_speak(replacement, &old), "the new authority is worth nothing");
        }
    }
}

#[test]
fn a_host_that_joined_in_the_middle_follows_back() {
    use Phase::*;
    let middle = advance(&advance(&authority("prod"), Init), UpdateClients);
    let mut host = settled_at(&middle);
    assert_eq!(host.disk.active_slot(), IdentitySlot::Current, "there is nothing to fall back to");
    walk(&middle, &mut host, &[Rollback, Standby, Init, UpdateClients, UpdateServers, Standby]);
}

#[test]
fn what_is_missed_matters_only_sometimes() {
    use Phase::*;
    // The phases up to which the host follows, the ones that it misses, and whether it is still known.
    let cases: &[(&[Phase], &[Phase], bool)] = &[
        (&[], &[Init, UpdateClients], true),
        (&[], &[Init, UpdateClients, UpdateServers], false),
        (&[], &[Init, UpdateClients, UpdateServers, Rollback], true),
        (&[], &[Init, UpdateClients, UpdateServers, Rollback, Standby], true),
        (&[Init], &[UpdateClients, UpdateServers], true),
        (&[Init], &[UpdateClients, UpdateServers, Standby], false),
        (&[Init], &[Rollback, Standby], true),
        (&[Init, UpdateClients], &[UpdateServers, Standby], true),
        (&[Init, UpdateClients], &[Rollback, Standby], true),
        (&[Init, UpdateClients], &[UpdateServers, Rollback, Standby], true),
        (&[Init, UpdateClients], &[UpdateServers, Standby, Init], true),
        (&[Init, UpdateClients], &[UpdateServers, Standby, Init, Rollback], true),
        (&[Init, UpdateClients], &[UpdateServers, Standby, Init, UpdateClients], true),
        (&[Init, UpdateClients], &[UpdateServers, Standby, Init, UpdateClients, UpdateServers], false),
    ];
    for (followed, missed, known) in cases {
        let old = authority("prod");
        let mut host = settled_at(&old);
        let there = walk(&old, &mut host, followed);
        let now = missed.iter().fold(there, |authority, phase| advance(&authority, *phase));
        let end = host.follow(&now, usize::MAX);
        assert_eq!(end, if *known { End::Settled } else { End::CutOff }, "{followed:?} {missed:?}");
        if *known {
            check_settled(&host, &now);
        }
    }
}

#[test]
fn what_a_rollback_needs_is_not_overwritten() {
    use Phase::*;
    let old = authority("prod");
    let mut host = settled_at(&old);
    let updated = walk(&old, &mut host, &[Init, UpdateClients]);
    // It misses the end of that rotation and is killed right after its next replacement is written.
    let missed = [UpdateServers, Standby, Init, UpdateClients];
    let now = missed.iter().fold(updated, |authority, phase| advance(&authority, *phase));
    assert_eq!(host.follow(&now, 3), End::Killed);
    assert!(host.disk.replacement.as_ref().unwrap().certificate().is_signed_by(now.certificate()));
    let back = advance(&advance(&now, Rollback), Standby);
    assert_eq!(host.follow(&back, usize::MAX), End::Settled);
    check_settled(&host, &back);
}

#[test]
fn an_identity_of_another_cluster_is_not_mended() {
    let host = settled_at(&authority("prod"));
    for other in ["prod", "staging"] {
        let says = authority(other).authorities();
        assert!(matches!(next_step(&host.disk, &says).unwrap(), Step::Rejoin));
    }
    let nothing = Authorities { tls: vec![], ssh: vec![], rotation_id: String::new(), phase: Phase::Standby };
    assert!(matches!(next_step(&host.disk, &nothing).unwrap(), Step::Rejoin));
    let empty = StoredIdentities::default();
    assert!(matches!(next_step(&empty, &authority("prod").authorities()).unwrap(), Step::Rejoin));
    assert!(empty.active().is_none());
}

#[test]
fn ssh_authorities_are_followed_too() {
    let authority = authority("prod");
    let host = settled_at(&authority);
    let mut says = authority.authorities();
    says.ssh = super::authority("prod").ssh_authorities().collect();
    let Step::Rewrite { slot: IdentitySlot::Current, identity, .. } = next_step(&host.disk, &says).unwrap()
    else {
        panic!("the SSH authorities have changed");
    };
    assert_eq!(identity.ssh_authorities(), says.ssh);
    assert_eq!(identity.authorities(), says.tls);
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The rotation goes on, one way or the other.
    Advance(usize),
    /// The host runs, and is killed after so many writes.
    Run(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![(0usize..2).prop_map(Event::Advance), (0usize..5).prop_map(Event::Run)];
    proptest::collection::vec(event, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_walk_loses_a_host_without_need(events in events(), faithful: bool) {
        let mut authority = authority("prod");
        let mut host = settled_at(&authority);
        // What the host has for certain from the last time that it finished: whose identities it holds
        // and whom it trusts.
        let (mut holds, mut trusts) = (pins([authority.certificate()]), pins(authority.certificates()));
        for event in events.into_iter().chain([Event::Run(usize::MAX)]) {
            let writes = match event {
                Event::Advance(choice) => {
                    let possible = authority.phase().possible();
                    authority = advance(&authority, possible[choice % possible.len()]);
                    if !faithful {
                        continue;
                    }
                    usize::MAX
                }
                Event::Run(writes) => writes,
            };
            let mut end = host.follow(&authority, writes);
            let mut joined = false;
            if end == End::CutOff {
                prop_assert!(!faithful, "a host that has seen every phase is never lost");
                let needs = CaPin::of(authority.server_certificate());
                let believed = pins(authority.certificates());
                prop_assert!(holds.is_disjoint(&believed) || !trusts.contains(&needs), "lost without need");
                end = host.join(&authority, writes);
                joined = true;
            }
            if end == End::Settled {
                check_settled(&host, &authority);
            }
            if end == End::Settled || joined {
                holds = host
                    .disk
                    .candidates()
                    .filter_map(|(_, identity)| {
                        authority.certificates().find(|ca| identity.certificate().is_signed_by(ca))
                    })
                    .map(CaPin::of)
                    .collect();
                trusts = pins(host.disk.candidates().flat_map(|(_, identity)| identity.authorities()));
            }
        }
        check_settled(&host, &authority);
    }
}
