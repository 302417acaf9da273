//! What is signed and trusted in each phase, and which phases follow which.

use std::time::Duration;

use proptest::prelude::*;
use refit_backend::MemoryBackend;

use super::{HOUR, authority, host_at, noon, server_at, user};
use crate::{Authority, Error, RotationError, RotationMode, record};
use refit_identity::{AuthError, Certificate, Identity, Phase};

pub(super) fn advance(authority: &Authority, to: Phase) -> Authority {
    authority.advance(to, RotationMode::Manual, noon()).unwrap()
}

/// Goes through the phases, one after the other.
fn walk(from: &Authority, phases: &[Phase]) -> Authority {
    phases.iter().fold(from.clone(), |authority, phase| advance(&authority, *phase))
}

fn trusts(authority: &Authority, identity: &Identity) -> bool {
    let chain = [identity.certificate().der().clone()];
    authority.trust().unwrap().verify_client(&chain, noon()).is_ok()
}

fn ders(authority: &Authority) -> Vec<Certificate> {
    authority.certificates().cloned().collect()
}

#[test]
fn each_phase_signs_and_trusts_what_it_should() {
    use Phase::*;
    let old = authority("prod");
    let init = walk(&old, &[Init]);
    let new = init.keys().next_back().unwrap().clone();
    let (old_ca, new_ca) = (old.certificate().clone(), new.certificate.clone());
    let (old_ssh, new_ssh) = (old.signing().ssh.to_authorized_key(), new.ssh.to_authorized_key());
    assert!(old_ca != new_ca && old_ssh != new_ssh);

    // The phases, whether clients and servers get certificates of the new authority, and what is trusted.
    let cases: &[(&[Phase], bool, bool, &[bool])] = &[
        (&[], false, false, &[false]),
        (&[UpdateClients], true, false, &[true, false]),
        (&[UpdateClients, UpdateServers], true, true, &[true, false]),
        (&[UpdateClients, UpdateServers, Standby], true, true, &[true]),
        (&[Rollback], false, false, &[false, true]),
        (&[UpdateClients, Rollback], false, false, &[false, true]),
        (&[UpdateClients, UpdateServers, Rollback], false, false, &[false, true]),
        (&[Rollback, Standby], false, false, &[false]),
        (&[UpdateClients, UpdateServers, Rollback, Standby], false, false, &[false]),
    ];
    let ca = |is_new: bool| if is_new { &new_ca } else { &old_ca };
    let ssh = |is_new: bool| if is_new { &new_ssh } else { &old_ssh };
    for (phases, clients, servers, trusted) in cases {
        let at = if phases.is_empty() { old.clone() } else { walk(&init, phases) };
        let trusted_cas: Vec<_> = trusted.iter().map(|is_new| ca(*is_new).clone()).collect();
        assert_eq!(ders(&at), trusted_cas, "{phases:?}");
        let trusted_ssh: Vec<_> = trusted.iter().map(|is_new| ssh(*is_new).clone()).collect();
        assert_eq!(at.ssh_authorities().collect::<Vec<_>>(), trusted_ssh, "{phases:?}");
        assert_eq!(at.certificate(), ca(*clients), "{phases:?}");
        assert_eq!(at.server_certificate(), ca(*servers), "{phases:?}");
        assert!(at.pin().matches(ca(*servers)), "{phases:?}");
        for identity in [user(&at), host_at(&at, "current", noon())] {
            assert!(identity.certificate().is_signed_by(ca(*clients)), "{phases:?}");
            assert!(!identity.certificate().is_signed_by(ca(!*clients)), "{phases:?}");
        }
        assert!(server_at(&at, noon()).1.is_signed_by(ca(*servers)), "{phases:?}");
    }
    assert_eq!(ders(&init), [old_ca, new_ca]);
    assert!(init.certificate() == old.certificate() && init.server_certificate() == old.certificate());
}

#[test]
fn what_a_rotation_leaves_behind_is_worthless() {
    use Phase::*;
    let old = authority("prod");
    let middle = walk(&old, &[Init, UpdateClients]);
    let (of_old, of_new) = (user(&old), user(&middle));
    assert!(trusts(&middle, &of_old) && trusts(&middle, &of_new));

    let done = walk(&middle, &[UpdateServers, Standby]);
    assert!(!trusts(&done, &of_old) && trusts(&done, &of_new));
    let back = walk(&middle, &[Rollback, Standby]);
    assert!(trusts(&back, &of_old) && !trusts(&back, &of_new));
    for (end, identity) in [(&done, &of_old), (&back, &of_new)] {
        let chain = [identity.certificate().der().clone()];
        let error = end.trust().unwrap().verify_client(&chain, noon()).unwrap_err();
        assert!(matches!(error, AuthError::NotSigned { .. }), "{error}");
        assert_eq!(end.keys().count(), 1, "nothing is kept that could sign again");
    }
    let again = walk(&done, &[Init]);
    assert_ne!(again.rotation().unwrap().id, done.rotation().unwrap().id);
}

#[test]
fn only_the_order_of_phases_is_allowed() {
    use Phase::*;
    let old = authority("prod");
    let reached = [
        (Standby, old.clone(), vec![Init]),
        (Init, walk(&old, &[Init]), vec![UpdateClients, Rollback]),
        (UpdateClients, walk(&old, &[Init, UpdateClients]), vec![UpdateServers, Rollback]),
        (UpdateServers, walk(&old, &[Init, UpdateClients, UpdateServers]), vec![Standby, Rollback]),
        (Rollback, walk(&old, &[Init, Rollback]), vec![Standby]),
        (Standby, walk(&old, &[Init, Rollback, Standby]), vec![Init]),
    ];
    for (phase, authority, allowed) in reached {
        assert_eq!(authority.phase(), phase);
        for to in Phase::ALL {
            let result = authority.advance(to, RotationMode::Manual, noon());
            match result {
                Ok(next) => assert!(allowed.contains(&to) && next.phase() == to, "{phase} {to}"),
                Err(RotationError::Impossible { .. }) => assert!(!allowed.contains(&to), "{phase} {to}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    let error = walk(&old, &[Init]).advance(Standby, RotationMode::Manual, noon()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a rotation cannot go from init to standby: from init it can go to update_clients or rollback"
    );
    for phase in Phase::ALL {
        assert_eq!(phase.to_string().parse::<Phase>().unwrap(), phase);
    }
}

#[test]
fn an_automatic_rotation_knows_when_it_goes_on() {
    let mode = RotationMode::Automatic { grace: HOUR * 3 };
    let mut authority = authority("prod");
    assert!(authority.rotation().is_none());
    let mut now = noon();
    for (phase, next) in [
        (Phase::Init, Some(Phase::UpdateClients)),
        (Phase::UpdateClients, Some(Phase::UpdateServers)),
        (Phase::UpdateServers, Some(Phase::Standby)),
        (Phase::Standby, None),
    ] {
        authority = authority.advance(phase, mode, now).unwrap();
        let rotation = authority.rotation().unwrap();
        assert_eq!((rotation.started_at, rotation.phase_since), (noon(), now));
        assert_eq!(rotation.next_phase(), next.map(|next| (next, now.checked_add(HOUR).unwrap())));
        now = now.checked_add(HOUR * 2).unwrap();
    }
    let manual = advance(&authority, Phase::Init);
    assert_eq!(manual.rotation().unwrap().next_phase_at(), None);
    let endless = RotationMode::Automatic { grace: Duration::MAX };
    let endless = authority.advance(Phase::Init, endless, noon()).unwrap();
    assert_eq!(endless.rotation().unwrap().next_phase_at(), Some(jiff::Timestamp::MAX));
}

#[tokio::test]
async fn of_two_servers_that_advance_one_is_told() {
    let store = MemoryBackend::default();
    assert!(Authority::load(&store).await.unwrap().is_none());
    let created = Authority::load_or_create(&store, "prod".parse().unwrap(), noon()).await.unwrap();
    let first = Authority::load(&store).await.unwrap().unwrap();
    let second = Authority::load(&store).await.unwrap().unwrap();
    assert_eq!(first.authority().pin(), created.pin());

    let init = advance(first.authority(), Phase::Init);
    let first = first.replace(&store, init.clone(), &[]).await.unwrap();
    let refused = second.replace(&store, advance(second.authority(), Phase::Init), &[]).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict), "{refused:?}");

    let loaded = Authority::load(&store).await.unwrap().unwrap();
    assert_eq!(loaded.revision(), first.revision());
    assert_eq!(loaded.authority().rotation(), init.rotation());
    let again = Authority::load_or_create(&store, "other".parse().unwrap(), noon()).await.unwrap();
    assert_eq!(ders(&again), ders(&init));
    first.replace(&store, advance(&init, Phase::UpdateClients), &[]).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_restart_anywhere_finds_everything_as_it_was(choices in proptest::collection::vec(0usize..2, 0..10)) {
        let mut authority = authority("prod");
        for choice in choices {
            let possible = authority.phase().possible();
            let mode = RotationMode::Automatic { grace: HOUR };
            authority = authority.advance(possible[choice % possible.len()], mode, noon()).unwrap();
            let again = record::decode(&record::encode(&authority).unwrap()).unwrap();
            prop_assert_eq!(again.rotation(), authority.rotation());
            prop_assert_eq!(ders(&again), ders(&authority));
            prop_assert_eq!(again.server_certificate(), authority.server_certificate());
            let ssh = |authority: &Authority| authority.ssh_authorities().collect::<Vec<_>>();
            prop_assert_eq!(ssh(&again), ssh(&authority));
            let signed = host_at(&again, "current", noon());
            prop_assert!(trusts(&authority, &signed));
        }
    }
}
