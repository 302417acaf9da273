//! Rate limits by client network, in bounded memory. Used for joins and for `find`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Each has a lock of its own, so that cores that answer different addresses do not wait for each other.
const SHARDS: usize = 16;

/// How much an address may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// Times in a row, after a pause.
    pub(crate) burst: u32,
    /// How long it takes until one of them is allowed again.
    pub(crate) one_every: Duration,
    /// Addresses remembered. When there are more, those that owe least go first.
    pub(crate) addresses: usize,
}

impl Allowance {
    /// Refused attempts to join. A fleet behind one address joins freely, because only what is refused
    /// counts; a guesser gets six tries a minute.
    pub(crate) const REFUSED_JOINS: Self =
        Self { burst: 10, one_every: Duration::from_secs(10), addresses: 10_000 };
}

/// Limits the request rate of each network, in bounded memory.
#[derive(Debug)]
pub(crate) struct Limiter {
    allowance: Allowance,
    /// For each network the moment at which its allowance is full again.
    shards: [Mutex<HashMap<Network, Instant>>; SHARDS],
}

/// The unit of limiting: a single IPv4 address, or an IPv6 /64, which one customer commonly has entirely. IPv4
/// addresses are mapped into the range of IPv6 multicast, which is never a source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(u64);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(0xffff << 48 | u64::from(v4.to_bits())),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }
}

impl Limiter {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, shards: Default::default() }
    }

    /// Whether the address may try now, or how long it has to wait.
    pub(crate) fn check(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let network = address.into();
        let owes_until = self.shard(network).get(&network).copied();
        self.allowance.permits(owes_until.unwrap_or(now), now)
    }

    /// Counts one time, allowed or not.
    pub(crate) fn charge(&self, address: IpAddr, now: Instant) {
        let network = address.into();
        let mut shard = self.shard(network);
        let owes_until = self.entry(&mut shard, network, now);
        *owes_until = (*owes_until).max(now) + self.allowance.one_every;
    }

    /// Counts one time if it is allowed now, or says how long the address has to wait.
    pub(crate) fn take(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let network = address.into();
        let mut shard = self.shard(network);
        let owes_until = self.entry(&mut shard, network, now);
        self.allowance.permits(*owes_until, now)?;
        *owes_until = (*owes_until).max(now) + self.allowance.one_every;
        Ok(())
    }

    fn entry<'a>(
        &self,
        shard: &'a mut HashMap<Network, Instant>,
        network: Network,
        now: Instant,
    ) -> &'a mut Instant {
        let most = self.allowance.addresses / SHARDS;
        if shard.len() >= most && !shard.contains_key(&network) {
            make_room(shard, most / 2, now);
        }
        shard.entry(network).or_insert(now)
    }

    fn shard(&self, network: Network) -> MutexGuard<'_, HashMap<Network, Instant>> {
        let mixed = network.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let shard = &self.shards[mixed as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allowance {
    fn permits(&self, owes_until: Instant, now: Instant) -> Result<(), Duration> {
        let owed = owes_until.saturating_duration_since(now);
        let most = self.one_every * self.burst.saturating_sub(1);
        if owed > most { Err(owed - most) } else { Ok(()) }
    }
}

/// Drops those that owe nothing, and if too many are left, those that owe least.
fn make_room(shard: &mut HashMap<Network, Instant>, keep: usize, now: Instant) {
    shard.retain(|_, owes_until| *owes_until > now);
    let mut surplus = shard.len().saturating_sub(keep);
    let mut owing: Vec<Instant> = shard.values().copied().collect();
    owing.sort_unstable();
    let Some(&limit) = owing.get(surplus) else { return };
    shard.retain(|_, owes_until| {
        let drop = surplus > 0 && *owes_until <= limit;
        surplus -= usize::from(drop);
        !drop
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOINS: Allowance = Allowance::REFUSED_JOINS;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn remembered(limiter: &Limiter) -> usize {
        limiter.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[test]
    fn a_guesser_is_slowed_down_and_nobody_else() {
        let (limiter, start) = (Limiter::new(JOINS), Instant::now());
        for _ in 0..JOINS.burst {
            assert_eq!(limiter.check(address(1), start), Ok(()));
            limiter.charge(address(1), start);
        }
        assert_eq!(limiter.check(address(1), start), Err(JOINS.one_every));
        assert_eq!(limiter.check(address(2), start), Ok(()));
        assert!(limiter.check(address(1), start + Duration::from_secs(9)).is_err());
        let later = start + Duration::from_secs(10);
        assert_eq!(limiter.check(address(1), later), Ok(()));
        limiter.charge(address(1), later);
        assert!(limiter.check(address(1), later).is_err(), "one try for each that was forgiven");
        assert_eq!(limiter.check(address(1), start + Duration::from_secs(1000)), Ok(()));
    }

    #[test]
    fn what_is_refused_is_not_counted_by_take() {
        let allowance = Allowance { burst: 3, one_every: Duration::from_millis(10), addresses: 1000 };
        let (limiter, start) = (Limiter::new(allowance), Instant::now());
        let taken = (0..10).filter(|_| limiter.take(address(1), start).is_ok()).count();
        assert_eq!(taken, 3);
        assert_eq!(limiter.take(address(1), start), Err(Duration::from_millis(10)));
        assert_eq!(limiter.take(address(1), start + Duration::from_millis(10)), Ok(()));
        assert!(limiter.take(address(1), start + Duration::from_millis(19)).is_err());
        let rested = start + Duration::from_secs(1);
        assert_eq!((0..10).filter(|_| limiter.take(address(1), rested).is_ok()).count(), 3);
    }

    #[test]
    fn a_network_counts_as_one() {
        let (limiter, now) = (Limiter::new(JOINS), Instant::now());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for n in 0..JOINS.burst {
            limiter.charge(ip(&format!("2001:db8:0:1::{n}")), now);
        }
        assert!(limiter.check(ip("2001:db8:0:1:ffff::1"), now).is_err(), "the same /64");
        assert_eq!(limiter.check(ip("2001:db8:0:2::1"), now), Ok(()), "the next /64");
        for _ in 0..JOINS.burst {
            limiter.charge(ip("::ffff:192.0.2.1"), now);
        }
        assert!(limiter.check(ip("192.0.2.1"), now).is_err(), "the same address, written otherwise");
        assert_eq!(limiter.check(ip("::ffff:192.0.2.2"), now), Ok(()), "IPv4 counts by address");
    }

    #[test]
    fn memory_is_bounded() {
        let (limiter, now) = (Limiter::new(JOINS), Instant::now());
        for _ in 0..JOINS.burst {
            limiter.charge(address(u32::MAX), now);
        }
        for n in 0..10 * JOINS.addresses as u32 {
            limiter.charge(address(n), now);
            assert_eq!(limiter.take(address(n), now), Ok(()));
        }
        assert!(remembered(&limiter) <= JOINS.addresses);
        assert!(remembered(&limiter) > JOINS.addresses / 4, "it is not thrown away whole");
        assert!(
            limiter.check(address(u32::MAX), now).is_err(),
            "the worst one is not forgotten for the others"
        );
    }
}
