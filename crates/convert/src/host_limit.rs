//! Limits of hosts on the wire: a share or a number, and the whole percentage that readers of 0.1 know.

use refit_proto::rollouts::v1 as wire;
use refit_proto::rollouts::v1::host_limit::Limit;
use refit_types::{HostLimit, Percent};

/// What stands for a limit that is no whole percentage: no percentage at all, so that a reader of 0.1 shows the
/// server's text instead.
const NO_PERCENTAGE: u32 = u32::MAX;

/// Converts a limit for the wire.
pub(crate) fn host_limit(limit: HostLimit) -> wire::HostLimit {
    let limit = match limit {
        HostLimit::Share(share) => Limit::Millionths(share.millionths()),
        HostLimit::Hosts(hosts) => Limit::Hosts(hosts),
    };
    wire::HostLimit { limit: Some(limit) }
}

/// The limit as readers of 0.1 know it.
pub(crate) fn whole_percent(limit: HostLimit) -> u32 {
    match limit {
        HostLimit::Share(share) => share.whole().map_or(NO_PERCENTAGE, u32::from),
        HostLimit::Hosts(_) => NO_PERCENTAGE,
    }
}

/// Converts a limit from the wire; none for an unknown or invalid one. Servers of 0.1 send the percentage alone.
pub(crate) fn host_limit_from_wire(limit: Option<&wire::HostLimit>, percent: u32) -> Option<HostLimit> {
    match limit {
        Some(limit) => match limit.limit.as_ref()? {
            Limit::Hosts(hosts) => Some(HostLimit::Hosts(*hosts)),
            Limit::Millionths(millionths) => Percent::from_millionths(*millionths).map(HostLimit::Share),
        },
        None => u8::try_from(percent).ok().and_then(HostLimit::percent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_readers_get_whole_percentages_and_otherwise_nothing_that_they_could_misread() {
        let sent = |text: &str| whole_percent(text.parse().unwrap());
        assert_eq!([sent("0%"), sent("2%"), sent("100%")], [0, 2, 100]);
        for text in ["0.5%", "5 hosts", "0 hosts"] {
            assert!(u8::try_from(sent(text)).ok().and_then(Percent::new).is_none(), "{text}");
        }
    }

    #[test]
    fn old_servers_send_the_percentage_alone() {
        assert_eq!(host_limit_from_wire(None, 2), HostLimit::percent(2));
        assert_eq!(host_limit_from_wire(None, 101), None);
        let too_much = wire::HostLimit { limit: Some(Limit::Millionths(1_000_001)) };
        assert_eq!(host_limit_from_wire(Some(&too_much), 2), None);
    }
}
