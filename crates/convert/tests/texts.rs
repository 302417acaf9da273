//! Every value of the domain that is sent has a number on the wire, and that number means this value.

use refit_proto::rollouts::v1 as rollouts;
use refit_proto::{TextEnum, code_of, known_text, v1 as wire};
use refit_types::{AgentRole, Edition, GroupState, Halt, HaltCause, HostLimit, Schedule, UpgraderKind};

fn agree<E: TextEnum>(domain: &[&'static str]) {
    for text in domain {
        let code = code_of::<E>(text);
        assert_ne!(code, 0, "{text} has no number");
        assert_eq!(known_text::<E>(code), Some(*text));
    }
    assert_eq!(domain.len(), E::TEXTS.len(), "the wire has values that the domain does not know");
}

#[test]
fn the_wire_and_the_domain_have_the_same_values() {
    agree::<wire::AgentRole>(&AgentRole::ALL.iter().map(|role| role.as_str()).collect::<Vec<_>>());
    agree::<wire::Edition>(&Edition::ALL.iter().map(|edition| edition.as_str()).collect::<Vec<_>>());
    agree::<wire::Upgrader>(&UpgraderKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>());
    agree::<wire::RotationPhase>(&refit_identity::Phase::ALL.map(refit_identity::Phase::as_str));
    agree::<rollouts::Schedule>(&Schedule::ALL.iter().map(|schedule| schedule.as_str()).collect::<Vec<_>>());
    let halt = Halt { cause: HaltCause::Failed, count: 1, members: 1, limit: HostLimit::ZERO };
    let states = [GroupState::Scheduled, GroupState::Active, GroupState::Succeeded, GroupState::Halted(halt)];
    agree::<rollouts::GroupState>(&states.each_ref().map(GroupState::as_str));
}
