use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Refusals that an address may collect at once, and how long each takes to be forgiven. A fleet behind
/// one address joins freely, because only what is refused counts; a guesser gets six tries a minute.
const BURST: u32 = 10;
const FORGIVE_EVERY: Duration = Duration::from_secs(10);
/// Addresses remembered. When there are more, those nearest to being forgiven go first.
const MAX_ADDRESSES: usize = 10_000;

/// Slows down those who try tokens until one fits.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    refused: Mutex<HashMap<IpAddr, Debt>>,
}

/// What an address has used up, as of a moment.
#[derive(Debug, Clone, Copy)]
struct Debt {
    refusals: u32,
    as_of: Instant,
}

impl Debt {
    fn at(self, now: Instant) -> Self {
        let forgiven = now.saturating_duration_since(self.as_of).as_secs() / FORGIVE_EVERY.as_secs();
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX).min(self.refusals);
        let as_of = if forgiven == self.refusals { now } else { self.as_of + FORGIVE_EVERY * forgiven };
        Self { refusals: self.refusals - forgiven, as_of }
    }
}

impl Limiter {
    /// Whether the address may try now, or how long it has to wait.
    pub(crate) fn check(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match refused.get(&address).map(|debt| debt.at(now)) {
            Some(debt) if debt.refusals >= BURST => {
                Err((debt.as_of + FORGIVE_EVERY).saturating_duration_since(now))
            }
            _ => Ok(()),
        }
    }

    /// Notes that the address tried and was refused.
    pub(crate) fn refused(&self, address: IpAddr, now: Instant) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MAX_ADDRESSES && !refused.contains_key(&address) {
            make_room(&mut refused, now);
        }
        let debt = refused.entry(address).or_insert(Debt { refusals: 0, as_of: now });
        *debt = debt.at(now);
        debt.refusals += 1;
    }
}

/// Drops the forgiven ones, or half of the rest: those that owe least.
fn make_room(refused: &mut HashMap<IpAddr, Debt>, now: Instant) {
    refused.retain(|_, debt| debt.at(now).refusals > 0);
    if refused.len() < MAX_ADDRESSES {
        return;
    }
    let mut owed: Vec<u32> = refused.values().map(|debt| debt.at(now).refusals).collect();
    owed.sort_unstable();
    let median = owed[owed.len() / 2];
    let mut surplus = refused.len() / 2;
    refused.retain(|_, debt| {
        let drop = surplus > 0 && debt.at(now).refusals <= median;
        surplus -= usize::from(drop);
        !drop
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn a_guesser_is_slowed_down_and_nobody_else() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(limiter.check(address(1), start), Ok(()));
            limiter.refused(address(1), start);
        }
        assert_eq!(limiter.check(address(1), start), Err(FORGIVE_EVERY));
        assert_eq!(limiter.check(address(2), start), Ok(()));
        assert!(limiter.check(address(1), start + Duration::from_secs(9)).is_err());
        let later = start + Duration::from_secs(10);
        assert_eq!(limiter.check(address(1), later), Ok(()));
        limiter.refused(address(1), later);
        assert!(limiter.check(address(1), later).is_err(), "one try for each that was forgiven");
        assert_eq!(limiter.check(address(1), start + Duration::from_secs(1000)), Ok(()));
    }

    #[test]
    fn memory_is_bounded() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        for _ in 0..BURST {
            limiter.refused(address(u32::MAX), now);
        }
        for n in 0..3 * MAX_ADDRESSES as u32 {
            limiter.refused(address(n), now);
        }
        assert!(limiter.refused.lock().unwrap().len() <= MAX_ADDRESSES);
        assert!(
            limiter.check(address(u32::MAX), now).is_err(),
            "the worst one is not forgotten for the others"
        );
    }
}
