//! The stacked area chart of hosts by version over time, laid out for an SVG template. No I/O.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use refit_types::Version;

use super::format::{Mark, Moment};
use super::samples::Sample;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 140.0;
/// Points on the time axis.
const COLUMNS: usize = 180;
/// Versions with a colour of their own.
const MOST: usize = 6;
const OTHERS: &str = "others";
/// Rows of the table with the same data.
const ROWS: usize = 6;

/// Hosts by version over time, as stacked areas.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) areas: Vec<Area>,
    pub(super) most: u64,
    pub(super) half: u64,
    pub(super) begin: Mark,
    pub(super) middle: Mark,
    pub(super) rows: Vec<(Moment, Vec<u64>)>,
}

#[derive(Debug)]
pub(super) struct Area {
    pub(super) version: String,
    /// Index of its colour: the newest version has the first one.
    pub(super) shade: usize,
    pub(super) path: String,
    pub(super) now: u64,
}

impl Chart {
    /// The chart of a period until now; none without samples.
    pub(super) fn of(samples: &[Sample], from: Timestamp, now: Timestamp) -> Option<Self> {
        let whole = now.duration_since(from);
        let at = |part: usize, of: usize| {
            let seconds = whole.as_secs_f64() * part as f64 / of.max(1) as f64;
            from.checked_add(SignedDuration::from_secs_f64(seconds)).unwrap_or(now)
        };
        let seen = |moment: Timestamp| {
            let behind = samples.partition_point(|sample| sample.at <= moment);
            behind.checked_sub(1).and_then(|last| samples.get(last))
        };
        let versions = versions(samples);
        let count = |sample: Option<&Sample>, version: &str| -> u64 {
            let Some(sample) = sample else { return 0 };
            match version {
                OTHERS => {
                    let other = |(name, _): &(&String, &u64)| !versions.contains(name);
                    sample.hosts.iter().filter(other).map(|(_, count)| count).sum()
                }
                version => sample.hosts.get(version).copied().unwrap_or_default(),
            }
        };
        let columns: Vec<Option<&Sample>> = (0..=COLUMNS).map(|n| seen(at(n, COLUMNS))).collect();
        let total = |sample: &Option<&Sample>| sample.map_or(0, |sample| sample.hosts.values().sum());
        let most: u64 = columns.iter().map(total).max().filter(|most| *most > 0)?;
        let x = |column: usize| column as f64 * WIDTH / COLUMNS as f64;
        let y = |hosts: u64| HEIGHT - hosts as f64 * HEIGHT / most as f64;
        let mut below = vec![0; columns.len()];
        let named = versions.iter().filter(|version| *version != OTHERS).count();
        let areas = versions.iter().enumerate().map(|(n, version)| {
            let above: Vec<u64> =
                columns.iter().zip(&below).map(|(sample, below)| below + count(*sample, version)).collect();
            let mut path = String::new();
            let edge = above.iter().enumerate().chain(below.iter().enumerate().rev());
            for (n, (column, hosts)) in edge.enumerate() {
                let _ = write!(path, "{}{:.1} {:.1}", if n == 0 { 'M' } else { 'L' }, x(column), y(*hosts));
            }
            path.push('Z');
            below = above;
            let shade = named.checked_sub(n + 1).unwrap_or(MOST);
            Area { version: shown(version), shade, path, now: count(seen(now), version) }
        });
        let areas = areas.collect();
        let row = |n: usize| {
            let moment = at(n, ROWS - 1);
            let sample = seen(moment);
            (Moment(moment), versions.iter().map(|version| count(sample, version)).collect())
        };
        Some(Self {
            areas,
            most,
            half: most / 2,
            begin: Mark::of(from),
            middle: Mark::of(at(1, 2)),
            rows: (0..ROWS).map(row).collect(),
        })
    }
}

/// The versions with an area of their own, oldest first, and a name for the others.
fn versions(samples: &[Sample]) -> Vec<String> {
    let mut peaks: BTreeMap<&str, u64> = BTreeMap::new();
    for (version, count) in samples.iter().flat_map(|sample| &sample.hosts) {
        let peak = peaks.entry(version).or_default();
        *peak = (*peak).max(*count);
    }
    let mut all: Vec<(&str, u64)> = peaks.into_iter().filter(|(name, _)| *name != OTHERS).collect();
    let has_others = all.len() > MOST || samples.iter().any(|sample| sample.hosts.contains_key(OTHERS));
    all.sort_by_key(|(_, peak)| std::cmp::Reverse(*peak));
    all.truncate(MOST);
    let mut named: Vec<String> = all.into_iter().map(|(name, _)| name.to_owned()).collect();
    named.sort_by_key(|name| name.parse::<Version>().ok());
    named.extend(has_others.then(|| OTHERS.to_owned()));
    named
}

fn shown(version: &str) -> String {
    match version {
        "" => "never reported".into(),
        OTHERS => "other versions".into(),
        version => format!("v{version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn sample(second: i64, hosts: &[(&str, u64)]) -> Sample {
        let hosts = hosts.iter().map(|(version, count)| ((*version).to_owned(), *count));
        Sample { at: at(second), hosts: hosts.collect() }
    }

    #[test]
    fn areas_show_what_was_and_what_is() {
        let samples = [
            sample(0, &[("15.9.0", 8)]),
            sample(300, &[("15.9.0", 6), ("15.10.0", 2)]),
            sample(600, &[("15.10.0", 8)]),
        ];
        let chart = Chart::of(&samples, at(0), at(600)).unwrap();
        let now: Vec<(&str, u64)> =
            chart.areas.iter().map(|area| (area.version.as_str(), area.now)).collect();
        assert_eq!((now, chart.most), (vec![("v15.9.0", 0), ("v15.10.0", 8)], 8));
        let shades: Vec<usize> = chart.areas.iter().map(|area| area.shade).collect();
        assert_eq!(shades, [1, 0], "the newest has the first colour");
        assert_eq!(chart.rows[3].1, [6, 2], "in the middle");
        assert!(chart.areas[0].path.starts_with("M0.0 0.0L4.0 0.0"), "{}", chart.areas[0].path);
        assert!(Chart::of(&[sample(0, &[])], at(0), at(600)).is_none());
    }

    #[test]
    fn many_versions_share_the_last_colour() {
        let many: Vec<(String, u64)> = (0..20).map(|n| (format!("1.{n}.0"), 100 - n)).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let chart = Chart::of(&[sample(0, &many)], at(0), at(600)).unwrap();
        assert_eq!(chart.areas.len(), MOST + 1);
        assert_eq!((chart.areas[MOST].version.as_str(), chart.areas[MOST].shade), ("other versions", MOST));
        assert_eq!(chart.areas.iter().map(|area| area.now).sum::<u64>(), chart.most);
    }
}
