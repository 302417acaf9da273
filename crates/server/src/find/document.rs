//! The JSON document of `find` and its entity tag, built without a serializer because every updater polls it.

use hyper::body::Bytes;
use refit_types::Edition;

use crate::find::Answer;

/// Part of every tag. Change it together with the format of the document, so that cached copies become invalid.
const FORM: &[u8] = b"find 1";

/// The document with everything that does not depend on the host filled in.
pub(super) struct Form {
    /// Up to the version.
    head: String,
    /// Between the answer and its repetition for the updaters of Teleport.
    middle: String,
    /// The tag of what is in the two.
    seed: Hash,
}

impl Form {
    pub(super) fn new(edition: Edition) -> Self {
        let (short, fips) = match edition {
            Edition::Oss => ("oss", false),
            Edition::Enterprise => ("ent", false),
            Edition::EnterpriseFips => ("ent", true),
        };
        Self {
            head: format!(r#"{{"server_edition":"{edition}","#),
            middle: format!(r#","edition":"{short}","fips":{fips},"auto_update":{{"#),
            seed: Hash::START.with(FORM).with(edition.to_string().as_bytes()),
        }
    }

    /// The document for one answer.
    pub(super) fn fill(&self, answer: &Answer) -> Bytes {
        let mut digits = [Digits::default(), Digits::default()];
        let [jitter, attempt] = &mut digits;
        let (jitter, attempt) = (
            jitter.of(u64::from(answer.jitter_seconds)),
            Some(answer.attempt).filter(|n| *n > 0).map(|n| attempt.of(n)),
        );
        let what: [&str; 6] = [
            r#""agent_version":""#,
            &answer.version,
            r#"","agent_auto_update":"#,
            if answer.auto_update { "true" } else { "false" },
            r#","agent_update_jitter_seconds":"#,
            jitter,
        ];
        let end = match (attempt, answer.withheld) {
            (Some(attempt), _) => [r#"},"agent_update_attempt":"#, attempt, "}\n"],
            (None, Some(stopped)) => [r#"},"agent_version_withheld":""#, stopped.as_str(), "\"}\n"],
            (None, None) => ["}}\n", "", ""],
        };
        let parts = || {
            [&self.head]
                .into_iter()
                .map(String::as_str)
                .chain(what)
                .chain([&*self.middle])
                .chain(what)
                .chain(end)
        };
        let mut text = Vec::with_capacity(parts().map(str::len).sum());
        parts().for_each(|part| text.extend_from_slice(part.as_bytes()));
        text.into()
    }

    /// The entity tag of the document for that answer, the same on all servers.
    pub(super) fn tag(&self, answer: &Answer) -> [u8; 18] {
        let hash = self
            .seed
            .with(answer.version.as_bytes())
            .with(&[u8::from(answer.auto_update)])
            .with(&answer.jitter_seconds.to_le_bytes())
            .with(&answer.attempt.to_le_bytes());
        let hash = answer.withheld.map_or(hash, |stopped| hash.with(stopped.as_str().as_bytes()));
        let mut tag = [b'"'; 18];
        for (place, byte) in tag[1..17].chunks_exact_mut(2).zip(hash.0.to_be_bytes()) {
            place.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        tag
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// FNV-1a: enough against accidental collisions, and stable across builds and platforms.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    const START: Self = Self(0xcbf2_9ce4_8422_2325);

    /// One more field. Its end counts, so that no two lists of fields run into the same bytes.
    fn with(self, field: &[u8]) -> Self {
        let bytes = field.iter().copied().chain([0xff]);
        Self(bytes.fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

/// Room for a number in decimal.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn of(&mut self, mut number: u64) -> &str {
        let mut first = self.0.len();
        loop {
            first -= 1;
            self.0[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return std::str::from_utf8(&self.0[first..]).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use refit_rollout::Stopped;
    use serde_json::{Value, json};

    use super::*;

    fn answer(version: &str, auto_update: bool, jitter_seconds: u32, attempt: u64) -> Answer {
        Answer { version: version.into(), auto_update, jitter_seconds, attempt, withheld: None }
    }

    fn filled(edition: Edition, answer: &Answer) -> String {
        String::from_utf8(Form::new(edition).fill(answer).to_vec()).unwrap()
    }

    #[test]
    fn the_document() {
        assert_eq!(
            filled(Edition::Oss, &answer("15.1.1", true, 10, 0)),
            concat!(
                r#"{"server_edition":"oss","agent_version":"15.1.1","agent_auto_update":true,"#,
                r#""agent_update_jitter_seconds":10,"edition":"oss","fips":false,"auto_update":{"#,
                r#""agent_version":"15.1.1","agent_auto_update":true,"agent_update_jitter_seconds":10}}"#,
                "\n"
            )
        );
        assert_eq!(
            filled(Edition::EnterpriseFips, &answer("15.2.0-rc.1+x", false, u32::MAX, u64::MAX)),
            concat!(
                r#"{"server_edition":"enterprise-fips","agent_version":"15.2.0-rc.1+x","agent_auto_update":false,"#,
                r#""agent_update_jitter_seconds":4294967295,"edition":"ent","fips":true,"auto_update":{"#,
                r#""agent_version":"15.2.0-rc.1+x","agent_auto_update":false,"agent_update_jitter_seconds":4294967295},"#,
                r#""agent_update_attempt":18446744073709551615}"#,
                "\n"
            )
        );
        let enterprise: Value =
            serde_json::from_str(&filled(Edition::Enterprise, &answer("1.0.0", false, 0, 7))).unwrap();
        let auto_update =
            json!({"agent_version": "1.0.0", "agent_auto_update": false, "agent_update_jitter_seconds": 0});
        assert_eq!(
            enterprise,
            json!({
                "server_edition": "enterprise", "agent_version": "1.0.0", "agent_auto_update": false,
                "agent_update_jitter_seconds": 0, "edition": "ent", "fips": false, "auto_update": auto_update,
                "agent_update_attempt": 7,
            })
        );
    }

    #[test]
    fn a_version_that_new_hosts_should_not_install_is_marked() {
        let withheld = |withheld| Answer { withheld, ..answer("15.1.1", false, 0, 0) };
        let document: Value =
            serde_json::from_str(&filled(Edition::Oss, &withheld(Some(Stopped::Halted)))).unwrap();
        assert_eq!(
            (&document["agent_version"], &document["agent_auto_update"]),
            (&json!("15.1.1"), &json!(false))
        );
        assert_eq!(document["agent_version_withheld"], "halted");
        let tags = [None, Some(Stopped::Halted), Some(Stopped::Paused)]
            .map(|stopped| Form::new(Edition::Oss).tag(&withheld(stopped)));
        assert!(tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2]);
    }

    /// A tag that changes with the build would make every host fetch again, and two servers disagree.
    #[test]
    fn tags_are_pinned() {
        let tag =
            |edition, answer: &Answer| String::from_utf8(Form::new(edition).tag(answer).to_vec()).unwrap();
        assert_eq!(tag(Edition::Oss, &answer("15.1.1", true, 10, 0)), r#""2bc5a0677e3eb429""#);
        assert_eq!(tag(Edition::Enterprise, &answer("15.1.1", true, 10, 0)), r#""d3df909e1293ed25""#);
    }

    #[test]
    fn every_input_counts_in_the_tag() {
        let mut tags = BTreeSet::new();
        let mut count = 0;
        for edition in [Edition::Oss, Edition::Enterprise, Edition::EnterpriseFips] {
            let form = Form::new(edition);
            for version in ["1.0.0", "1.0.1", "1.0.10", "1.0.1-0"] {
                for auto_update in [false, true] {
                    for jitter in [0, 1, 10, 256, 3600] {
                        for attempt in [0, 1, 2, 255, 256, 1 << 40] {
                            tags.insert(form.tag(&answer(version, auto_update, jitter, attempt)));
                            count += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(tags.len(), count);
    }
}
