//! Enums that 0.1 sent as text. Writers fill both fields for one major version; readers take the enum, and the text
//! when the enum is unspecified or of a newer peer. No I/O. Used wherever such a field is written or read.

use crate::rollouts::v1::{GroupState, HostOutcome, Schedule};
use crate::rotation::v1::{LaggingKind, RotationMode};
use crate::v1::{AgentRole, Edition, RotationPhase, Upgrader};

/// An enum of the wire with the text that 0.1 has for each of its values.
pub trait TextEnum: Copy + Into<i32> + 'static {
    /// Every value but the unspecified one, and its text.
    const TEXTS: &'static [(Self, &'static str)];
}

/// The number for a text; unspecified (0) for one that the enum does not have.
pub fn code_of<E: TextEnum>(text: &str) -> i32 {
    E::TEXTS.iter().find(|(_, known)| *known == text).map_or(0, |(value, _)| (*value).into())
}

/// The text for a number; nothing if it is unspecified or not known.
pub fn known_text<E: TextEnum>(code: i32) -> Option<&'static str> {
    E::TEXTS.iter().find(|(value, _)| (*value).into() == code).map(|(_, text)| *text)
}

/// What the two fields of a value say together: the enum if it is known, or else the text as it is. A number that is
/// not known and comes without a text is shown as that number, so that nobody takes it for absent.
pub fn text_of<E: TextEnum>(code: i32, text: &str) -> String {
    match known_text::<E>(code) {
        Some(known) => known.to_owned(),
        None if text.is_empty() && code != 0 => format!("unknown ({code})"),
        None => text.to_owned(),
    }
}

/// [`code_of`] each of these.
pub fn codes_of<E: TextEnum>(texts: &[String]) -> Vec<i32> {
    texts.iter().map(|text| code_of::<E>(text)).collect()
}

/// [`text_of`] two lists that go together by position. One that is shorter was left out by its writer.
pub fn texts_of<E: TextEnum>(codes: &[i32], texts: &[String]) -> Vec<String> {
    let count = codes.len().max(texts.len());
    let code = |n: usize| codes.get(n).copied().unwrap_or_default();
    let text = |n: usize| texts.get(n).map(String::as_str).unwrap_or_default();
    (0..count).map(|n| text_of::<E>(code(n), text(n))).collect()
}

macro_rules! text_enum {
    ($name:ident, { $($value:ident => $text:literal),+ $(,)? }) => {
        impl TextEnum for $name {
            const TEXTS: &'static [(Self, &'static str)] = &[$((Self::$value, $text)),+];
        }
    };
}

text_enum!(RotationPhase, {
    Standby => "standby",
    Init => "init",
    UpdateClients => "update_clients",
    UpdateServers => "update_servers",
    Rollback => "rollback",
});
text_enum!(RotationMode, { Manual => "manual", Automatic => "automatic" });
text_enum!(LaggingKind, { Host => "host", User => "user" });
text_enum!(AgentRole, {
    Node => "node",
    Kube => "kube",
    App => "app",
    Db => "db",
    Discovery => "discovery",
});
text_enum!(Edition, {
    Oss => "oss",
    Enterprise => "enterprise",
    EnterpriseFips => "enterprise-fips",
});
text_enum!(Upgrader, { None => "none", Binary => "binary", Unit => "unit", Kube => "kube" });
text_enum!(Schedule, { Regular => "regular", Critical => "critical", Immediate => "immediate" });
text_enum!(GroupState, {
    Scheduled => "scheduled",
    Active => "active",
    Succeeded => "succeeded",
    Halted => "halted",
});
text_enum!(HostOutcome, {
    Upgraded => "upgraded",
    Unchanged => "unchanged",
    Held => "held",
    Away => "away",
    InFlight => "in_flight",
    Failed => "failed",
    TimedOut => "timed_out",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_enum_counts_where_it_is_known_and_else_the_text() {
        let phase = |code: i32, text: &str| text_of::<RotationPhase>(code, text);
        assert_eq!(phase(RotationPhase::Init.into(), "init"), "init");
        assert_eq!(phase(RotationPhase::Init.into(), "standby"), "init", "the enum says what is meant");
        assert_eq!(phase(RotationPhase::Init.into(), ""), "init", "a peer that sends no text any more");
        assert_eq!(phase(0, "update_clients"), "update_clients", "a peer of 0.1");
        assert_eq!(phase(99, "revoke"), "revoke", "a newer peer");
        assert_eq!(phase(99, ""), "unknown (99)");
        assert_eq!(phase(-1, ""), "unknown (-1)");
        assert_eq!(phase(0, ""), "", "what is absent stays so");
    }

    #[test]
    fn a_text_that_the_enum_does_not_have_is_unspecified() {
        assert_eq!(code_of::<RotationPhase>("rollback"), RotationPhase::Rollback as i32);
        for text in ["", "Rollback", "revoke", "unspecified"] {
            assert_eq!(code_of::<RotationPhase>(text), 0, "{text}");
        }
        assert_eq!(known_text::<RotationPhase>(0), None);
    }

    #[test]
    fn lists_are_read_by_position() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let read = |codes: &[i32], words: &[&str]| texts_of::<AgentRole>(codes, &texts(words));
        assert_eq!(codes_of::<AgentRole>(&texts(&["kube", "robot", "node"])), [2, 0, 1]);
        assert_eq!(read(&[2, 0, 1], &["kube", "robot", "node"]), ["kube", "robot", "node"]);
        assert_eq!(read(&[], &["app"]), ["app"], "a peer of 0.1");
        assert_eq!(read(&[3, 4], &[]), ["app", "db"], "a peer that sends no text any more");
        assert_eq!(read(&[3, 77], &["app", "robot"]), ["app", "robot"], "a newer peer");
        assert!(read(&[], &[]).is_empty());
    }

    /// Whether an enum has a text for every number of its `.proto`, and no number twice.
    fn is_complete<E: TextEnum + TryFrom<i32>>() -> bool {
        let declared = (1..100).filter(|code| E::try_from(*code).is_ok()).collect::<Vec<i32>>();
        let mut told: Vec<i32> = E::TEXTS.iter().map(|(value, _)| (*value).into()).collect();
        told.sort_unstable();
        told == declared
    }

    #[test]
    fn every_value_has_a_text() {
        assert!(is_complete::<RotationPhase>() && is_complete::<RotationMode>());
        assert!(is_complete::<LaggingKind>() && is_complete::<AgentRole>());
        assert!(is_complete::<Edition>() && is_complete::<Upgrader>());
        assert!(is_complete::<Schedule>() && is_complete::<GroupState>() && is_complete::<HostOutcome>());
    }
}
