//! How many hosts of a group a setting allows: a share of the members, or a number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Percent;

/// A limit or threshold of a group. Its text is `5%` or `5 hosts`: releases that know shares only take a plain number
/// for a percentage, so none is ever stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostLimit {
    /// This share of the members.
    Share(Percent),
    /// So many hosts, however many members there are.
    Hosts(u32),
}

/// A text that is neither a share nor a number of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no limit; expected {EXPECTED}")]
pub struct NotAHostLimit {
    found: String,
}

/// What may be said in a document.
pub(crate) const EXPECTED: &str =
    "a share from 0% to 100%, like 5% or 0.5%, or a whole number of hosts, like 5";

impl HostLimit {
    /// None.
    pub const ZERO: Self = Self::Share(Percent::ZERO);
    /// A tenth of the members.
    pub const TENTH: Self = Self::Share(Percent::TENTH);
    /// All members.
    pub const ALL: Self = Self::Share(Percent::ALL);

    /// So many percent of the members, if there can be so many.
    pub fn percent(percent: u8) -> Option<Self> {
        Percent::new(percent).map(Self::Share)
    }

    /// Whether it allows no host, however many members there are.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Share(Percent::ZERO) | Self::Hosts(0))
    }

    /// How many hosts may be in flight: a share is rounded up, so that only a limit of zero is none.
    pub fn slots(self, members: u32) -> u32 {
        match self {
            Self::Share(share) => share.ceil_of(members),
            Self::Hosts(hosts) => hosts,
        }
    }

    /// Whether so many hosts are more than it allows of that many members.
    pub fn is_exceeded_by(self, hosts: u32, members: u32) -> bool {
        match self {
            Self::Share(share) => share.is_exceeded_by(hosts, members),
            Self::Hosts(allowed) => hosts > allowed,
        }
    }
}

impl FromStr for HostLimit {
    type Err = NotAHostLimit;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let limit = if text.ends_with('%') {
            text.parse().ok().map(Self::Share)
        } else {
            let number =
                text.strip_suffix("hosts").or_else(|| text.strip_suffix("host")).unwrap_or(text).trim_end();
            let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse().ok().filter(|_| is_plain).map(Self::Hosts)
        };
        limit.ok_or_else(|| NotAHostLimit { found: text.chars().take(80).collect() })
    }
}

impl fmt::Display for HostLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => share.fmt(f),
            Self::Hosts(1) => f.write_str("1 host"),
            Self::Hosts(hosts) => write!(f, "{hosts} hosts"),
        }
    }
}

impl TryFrom<String> for HostLimit {
    type Error = NotAHostLimit;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HostLimit> for String {
    fn from(limit: HostLimit) -> Self {
        limit.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_numbers_come_back_as_they_went() {
        for (text, written) in [
            ("5%", "5%"),
            ("0.5%", "0.5%"),
            ("5", "5 hosts"),
            ("1", "1 host"),
            ("0", "0 hosts"),
            ("5 hosts", "5 hosts"),
        ] {
            let limit: HostLimit = text.parse().unwrap();
            assert_eq!(limit.to_string(), written);
            assert_eq!(written.parse(), Ok(limit));
        }
        for wrong in ["", "hosts", "-5", "5.5", "0.5", "5 nodes", "101%", "4294967296", "5 %%"] {
            let error = wrong.parse::<HostLimit>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("is no limit; expected {EXPECTED}")), "{error}");
        }
    }

    #[test]
    fn a_number_of_hosts_does_not_depend_on_the_members() {
        let five = HostLimit::Hosts(5);
        assert_eq!([0, 3, 1_000_000].map(|members| five.slots(members)), [5, 5, 5]);
        assert!(!five.is_exceeded_by(5, 10) && five.is_exceeded_by(6, 1_000_000));
        assert!(HostLimit::Hosts(0).is_zero() && HostLimit::ZERO.is_zero() && !five.is_zero());
    }
}
