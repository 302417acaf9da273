//! How simulated hosts respond to an update: outcomes and durations drawn from a seed, so that runs repeat.

use std::fmt;
use std::str::FromStr;

/// How simulated hosts behave once they are told to upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// The fewest and the most seconds that an upgrade takes.
    pub seconds: (u32, u32),
    /// The share whose updater rolls the update back.
    pub fail: Share,
    /// The share that starts the update and never finishes.
    pub hang: Share,
    /// The share that disconnects for good.
    pub die: Share,
    /// The same seed makes the same run.
    pub seed: u64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { seconds: (20, 60), fail: Share::NONE, hang: Share::NONE, die: Share::NONE, seed: 1 }
    }
}

impl Behaviour {
    /// A validation error, if there is one: more than all hosts, or a range that ends before it begins.
    pub fn validation_error(&self) -> Option<String> {
        let shares = [self.fail, self.hang, self.die];
        if shares.iter().map(|share| share.0).sum::<u32>() > WHOLE {
            let [fail, hang, die] = shares;
            return Some(format!("{fail} that fail, {hang} that hang and {die} that die are more than all"));
        }
        let (fewest, most) = self.seconds;
        (fewest > most || most == 0 || most > LONGEST)
            .then(|| format!("an upgrade cannot take {fewest}-{most} seconds; expected 1-{LONGEST}"))
    }

    /// The outcome of a host in that attempt.
    pub(super) fn fate(&self, host: u32, attempt: u16) -> Fate {
        let drawn = u32::try_from(self.draw(host, attempt, Purpose::Fate) % u64::from(WHOLE)).unwrap_or(0);
        let failed = self.fail.0;
        let hung = failed.saturating_add(self.hang.0);
        let died = hung.saturating_add(self.die.0);
        match drawn {
            _ if drawn < failed => Fate::Undone,
            _ if drawn < hung => Fate::Hangs,
            _ if drawn < died => Fate::Dies,
            _ => Fate::Upgrades,
        }
    }

    /// How many seconds the upgrade takes.
    pub(super) fn length(&self, host: u32, attempt: u16) -> u32 {
        let (fewest, most) = self.seconds;
        fewest + self.up_to(most.saturating_sub(fewest), host, attempt, Purpose::Length)
    }

    /// An even draw from 0 to `most`.
    pub(super) fn up_to(&self, most: u32, host: u32, attempt: u16, purpose: Purpose) -> u32 {
        u32::try_from(self.draw(host, attempt, purpose) % (u64::from(most) + 1)).unwrap_or(0)
    }

    /// Depends on nothing but its arguments and the seed, so that no state is needed for each host.
    fn draw(&self, host: u32, attempt: u16, purpose: Purpose) -> u64 {
        let what = u64::from(host) << 32 | u64::from(attempt) << 8 | purpose as u64;
        mixed(self.seed ^ mixed(what))
    }
}

/// An upgrade that takes longer than a day is one that hangs.
const LONGEST: u32 = 86_400;

/// What a draw is for: each is independent of the others.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Fate,
    Length,
    Hearing,
    Jitter,
    Death,
    Name,
}

/// What becomes of a host that upgrades.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Upgrades,
    Undone,
    Hangs,
    Dies,
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of the input.
pub(super) fn mixed(input: u64) -> u64 {
    let mut bits = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A share of all hosts: finer than the limits of a group, because failures are rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

/// A share is counted in millionths.
const WHOLE: u32 = 1_000_000;

impl Share {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(WHOLE);
}

/// A text that is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a share; expected 0% to 100%, like 2% or 0.5%")]
pub struct NotAShare {
    found: String,
}

impl FromStr for Share {
    type Err = NotAShare;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || NotAShare { found: text.chars().take(80).collect() };
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str, most| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole, 3) || !digits(part, 4) {
            return Err(refused());
        }
        let whole: u32 = whole.parse().map_err(|_| refused())?;
        let part: u32 = format!("{part:0<4}").parse().map_err(|_| refused())?;
        let share = whole * 10_000 + part;
        if share <= WHOLE { Ok(Self(share)) } else { Err(refused()) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        match part {
            0 => write!(f, "{whole}%"),
            _ => write!(f, "{whole}.{}%", format!("{part:04}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_shown_alike() {
        for (text, shown) in [("2%", "2%"), ("0.5%", "0.5%"), ("100", "100%"), ("0.0001%", "0.0001%")] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), shown);
        }
        for bad in ["", "%", "101%", "100.1%", "-1%", "1.00001%", "1e2%", "two", ".5%"] {
            assert!(bad.parse::<Share>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn fates_come_in_the_shares_that_were_asked_for() {
        let share = |text: &str| text.parse().unwrap();
        let behaviour = Behaviour {
            fail: share("10%"),
            hang: share("5%"),
            die: share("2.5%"),
            seconds: (10, 12),
            ..Behaviour::default()
        };
        let count = |fate| (0..100_000).filter(|host| behaviour.fate(*host, 1) == fate).count();
        assert!(count(Fate::Undone).abs_diff(10_000) < 500);
        assert!(count(Fate::Hangs).abs_diff(5_000) < 400);
        assert!(count(Fate::Dies).abs_diff(2_500) < 300);
        let lengths: std::collections::BTreeSet<u32> =
            (0..1000).map(|host| behaviour.length(host, 1)).collect();
        assert_eq!(lengths, [10, 11, 12].into());
        let again = Behaviour { seed: 2, ..behaviour };
        assert!((0..1000).any(|host| again.fate(host, 1) != behaviour.fate(host, 1)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = Behaviour::default();
        assert_eq!(good.validation_error(), None);
        let too_many = Behaviour { fail: Share::ALL, die: "1%".parse().unwrap(), ..good };
        assert!(too_many.validation_error().unwrap().contains("more than all"));
        for seconds in [(5, 4), (0, 0), (1, 86_401)] {
            assert!(Behaviour { seconds, ..good }.validation_error().is_some(), "{seconds:?}");
        }
    }
}
