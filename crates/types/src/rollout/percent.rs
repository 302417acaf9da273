//! Shares of a group and how they round: limits up, thresholds exactly.

use std::fmt;
use std::str::FromStr;

/// A share of a group, exact to a ten-thousandth of a percent: one host of a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent {
    millionths: u32,
}

/// A text that is no percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a percentage; expected 0% to 100%, with at most four decimals")]
pub struct NotAPercentage {
    found: String,
}

const WHOLE: u32 = 1_000_000;
/// The millionths of one percent.
const ONE_PERCENT: u32 = WHOLE / 100;
const DECIMALS: usize = 4;

impl Percent {
    /// None of it.
    pub const ZERO: Self = Self { millionths: 0 };
    /// A tenth of it.
    pub const TENTH: Self = Self { millionths: WHOLE / 10 };
    /// All of it.
    pub const ALL: Self = Self { millionths: WHOLE };

    /// So many percent, if there can be so many.
    pub fn new(percent: u8) -> Option<Self> {
        Self::from_millionths(u32::from(percent) * ONE_PERCENT)
    }

    /// So many millionths of the whole, if there can be so many.
    pub fn from_millionths(millionths: u32) -> Option<Self> {
        (millionths <= WHOLE).then_some(Self { millionths })
    }

    /// The share in millionths of the whole.
    pub fn millionths(self) -> u32 {
        self.millionths
    }

    /// The number, unless it has a fraction.
    pub fn whole(self) -> Option<u8> {
        let is_whole = self.millionths.is_multiple_of(ONE_PERCENT);
        u8::try_from(self.millionths / ONE_PERCENT).ok().filter(|_| is_whole)
    }

    /// How many of `whole` may be under way: rounded up, so that only 0% is none.
    pub fn ceil_of(self, whole: u32) -> u32 {
        let share = (u64::from(whole) * u64::from(self.millionths)).div_ceil(u64::from(WHOLE));
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    /// Whether `part` of `whole` is more than this share.
    pub fn is_exceeded_by(self, part: u32, whole: u32) -> bool {
        u64::from(part) * u64::from(WHOLE) > u64::from(whole) * u64::from(self.millionths)
    }
}

impl FromStr for Percent {
    type Err = NotAPercentage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let number = text.strip_suffix('%')?.trim_end();
            let (whole, decimals) = match number.split_once('.') {
                Some((_, "")) => return None,
                Some(parts) => parts,
                None => (number, ""),
            };
            let is_plain = !whole.is_empty() && decimals.len() <= DECIMALS;
            if !is_plain || !whole.bytes().chain(decimals.bytes()).all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let fraction: u32 = format!("{decimals:0<DECIMALS$}").parse().ok()?;
            let whole: u32 = whole.parse::<u32>().ok()?.checked_mul(ONE_PERCENT)?;
            Self::from_millionths(whole.checked_add(fraction)?)
        };
        read().ok_or_else(|| NotAPercentage { found: text.chars().take(80).collect() })
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.millionths / ONE_PERCENT, self.millionths % ONE_PERCENT);
        match fraction {
            0 => write!(f, "{whole}%"),
            _ => write!(f, "{whole}.{}%", format!("{fraction:0DECIMALS$}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_and_come_back_as_they_went() {
        for (text, millionths) in [
            ("0%", 0),
            ("0.5%", 5_000),
            ("0.0001%", 1),
            ("2.25%", 22_500),
            ("99.9999%", 999_999),
            ("100%", WHOLE),
        ] {
            let share: Percent = text.parse().unwrap();
            assert_eq!((share.millionths(), share.to_string().as_str()), (millionths, text));
        }
        for (text, same) in [("5.50%", "5.5%"), ("5.0%", "5%"), ("05 %", "5%"), ("100.0000%", "100%")] {
            assert_eq!(text.parse::<Percent>().unwrap().to_string(), same);
        }
        for wrong in ["", "%", "5", ".5%", "5.%", "100.0001%", "0.00001%", "-1%", "1e1%", "4294967296%", "٣%"]
        {
            assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fraction_of_a_host_is_a_slot_and_half_a_percent_is_exceeded_exactly() {
        let half: Percent = "0.5%".parse().unwrap();
        assert_eq!([0, 1, 200, 201, 1_000_000].map(|members| half.ceil_of(members)), [0, 1, 1, 2, 5_000]);
        assert!(!half.is_exceeded_by(1, 200) && half.is_exceeded_by(1, 199) && half.is_exceeded_by(2, 200));
        assert_eq!(Percent::ALL.ceil_of(u32::MAX), u32::MAX);
    }
}
