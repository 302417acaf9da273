//! Hosts by version over time: sampled in memory, stored every ten minutes, read by the chart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use refit_backend::{Error, Key, KeyRange, Result, SharedBackend};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::fleet::Fleet;

/// Often enough to see a rollout move; counting is cheap.
const EVERY: Duration = Duration::from_secs(5);
/// How often a sample is stored: about a thousand small records in a week, enough for the chart after a restart. Finer
/// samples are lost with the server's memory.
const STORE_EVERY: i64 = 600;
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The resolution in memory: everything of the last hour, one in five minutes for a day, then what the store has.
const FINE: [(i64, i64); 2] = [(3600, 0), (86_400, 300)];
/// Versions in one sample; the hosts of further ones are counted together.
const MOST_VERSIONS: usize = 12;

/// Hosts by version at some moment. Written once and never rewritten, so fields of a newer release are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    /// By version; the empty one is that of hosts that never reported.
    pub(super) hosts: BTreeMap<String, u64>,
}

/// Hosts by version over time.
#[derive(Debug)]
pub(super) struct Samples {
    backend: SharedBackend,
    fleet: Arc<Fleet>,
    now: fn() -> Timestamp,
    kept: Mutex<Vec<Sample>>,
}

impl Samples {
    pub(super) fn new(backend: SharedBackend, fleet: Arc<Fleet>, now: fn() -> Timestamp) -> Self {
        Self { backend, fleet, now, kept: Mutex::default() }
    }

    /// Takes samples until the server stops.
    pub(super) async fn take(&self, mut stop: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut loaded = false;
        let mut stored = 0;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if !loaded {
                match self.load().await {
                    Ok(()) => loaded = true,
                    Err(error) => {
                        tracing::warn!(%error, "could not read the stored samples of versions; retrying")
                    }
                }
            }
            if !self.fleet.is_loaded() {
                continue;
            }
            let sample = self.count();
            let bucket = sample.at.as_second() / STORE_EVERY;
            if loaded && bucket != stored {
                match self.store(&sample, bucket).await {
                    Ok(()) => stored = bucket,
                    Err(error) => tracing::warn!(%error, "could not store a sample of versions; retrying"),
                }
            }
            push(&mut self.lock(), sample);
        }
    }

    /// The samples since then and the current one, in the order of time.
    pub(super) fn since(&self, then: Timestamp, now: Timestamp) -> Vec<Sample> {
        let kept = self.lock();
        // The last sample before is the value at the start.
        let from = kept.partition_point(|sample| sample.at < then).saturating_sub(1);
        let mut samples = kept.get(from..).unwrap_or_default().to_vec();
        drop(kept);
        samples.push(Sample { at: now, ..self.count() });
        samples
    }

    /// The time of the first sample.
    pub(super) fn begin(&self) -> Option<Timestamp> {
        self.lock().first().map(|sample| sample.at)
    }

    fn count(&self) -> Sample {
        let versions = self.fleet.versions().into_iter();
        let mut all: Vec<(String, u64)> = versions
            .map(|(version, count)| (version.map(|v| v.to_string()).unwrap_or_default(), count))
            .collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let rest: u64 = all.iter().skip(MOST_VERSIONS).map(|(_, count)| count).sum();
        all.truncate(MOST_VERSIONS);
        let mut hosts: BTreeMap<String, u64> = all.into_iter().collect();
        if rest > 0 {
            *hosts.entry("others".into()).or_default() += rest;
        }
        Sample { at: (self.now)(), hosts }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Sample>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn load(&self) -> Result<()> {
        let (mut scan, mut samples) = (self.backend.scan(KeyRange::below(&prefix()?)), Vec::new());
        while let Some(items) = scan.next_page().await? {
            samples
                .extend(items.iter().filter_map(|item| serde_json::from_slice::<Sample>(&item.value).ok()));
        }
        let mut kept = self.lock();
        samples.append(&mut kept);
        samples.sort_by_key(|sample| sample.at);
        *kept = samples;
        Ok(())
    }

    /// Stores a sample unless another server has, and deletes old ones.
    async fn store(&self, sample: &Sample, bucket: i64) -> Result<()> {
        let value = serde_json::to_vec(sample).map_err(|error| Error::Invalid(error.to_string()))?;
        match self.backend.create(&key(bucket)?, value.into()).await {
            Ok(_) | Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
        let oldest = sample.at.checked_sub(KEPT_FOR).unwrap_or(Timestamp::UNIX_EPOCH);
        let old = KeyRange::between(&key(0)?, &key(oldest.as_second() / STORE_EVERY)?);
        self.backend.delete_range(&old).await.map(drop)
    }
}

fn prefix() -> Result<Key> {
    Key::new("/fleet_samples/v1/default")
}

/// Ten digits keep the order of time.
fn key(bucket: i64) -> Result<Key> {
    prefix()?.child(format!("{:010}", bucket.max(0)))
}

/// Adds a sample, and thins out what has become old.
fn push(kept: &mut Vec<Sample>, sample: Sample) {
    let now = sample.at;
    let changed = kept.last().is_none_or(|last| last.hosts != sample.hosts);
    let due = kept.last().is_none_or(|last| now.duration_since(last.at).as_secs() >= 60);
    if !changed && !due {
        return;
    }
    kept.push(sample);
    let mut last = None;
    kept.retain(|sample| {
        let age = now.duration_since(sample.at).as_secs();
        if age > KEPT_FOR.as_secs() {
            return false;
        }
        let apart = FINE.iter().find(|(until, _)| age <= *until).map_or(STORE_EVERY, |(_, apart)| *apart);
        let bucket = (apart > 0).then(|| (apart, sample.at.as_second() / apart));
        let keep = bucket.is_none() || bucket != last;
        last = bucket;
        keep
    });
}

#[cfg(test)]
mod tests {
    use refit_backend::MemoryBackend;

    use super::*;

    fn sample(second: i64, count: u64) -> Sample {
        let at = Timestamp::from_second(1_700_000_000 + second).unwrap();
        Sample { at, hosts: BTreeMap::from([("1.0.0".into(), count)]) }
    }

    #[test]
    fn a_week_of_samples_is_little_and_the_last_hour_is_whole() {
        let mut kept = Vec::new();
        (0..7 * 86_400 / 5).for_each(|n| push(&mut kept, sample(n * 5, n as u64)));
        assert!(kept.len() < 3000, "{}", kept.len());
        let last = kept.last().unwrap().at;
        let fine = kept.iter().filter(|sample| last.duration_since(sample.at).as_secs() <= 3600).count();
        assert_eq!(fine, 721);
        let mut quiet = Vec::new();
        (0..720).for_each(|n| push(&mut quiet, sample(n * 5, 7)));
        assert_eq!(quiet.len(), 60, "what does not change is kept once a minute");
    }

    #[tokio::test]
    async fn another_server_and_a_later_one_see_what_was() {
        let backend: SharedBackend = Arc::new(MemoryBackend::default());
        let new = || {
            let fleet = crate::fleet::tests::Bare::new(&backend, "s").fleet.clone();
            Samples::new(backend.clone(), fleet, Timestamp::now)
        };
        let one = new();
        let week = KEPT_FOR.as_secs() + STORE_EVERY;
        for (second, count) in [(0, 1), (600, 2), (week, 3)] {
            let sample = sample(second, count);
            one.store(&sample, sample.at.as_second() / STORE_EVERY).await.unwrap();
        }
        one.store(&sample(week, 9), sample(week, 9).at.as_second() / STORE_EVERY).await.unwrap();
        let newer = r#"{"at":"2023-11-14T22:13:20Z","hosts":{},"newer":{"deep":[1]}}"#;
        let bucket = sample(week, 0).at.as_second() / STORE_EVERY + 1;
        backend.put(&key(bucket).unwrap(), newer.into()).await.unwrap();
        one.store(&sample(week, 4), bucket).await.unwrap();
        let kept = backend.get(&key(bucket).unwrap()).await.unwrap().unwrap();
        assert_eq!(&*kept.value, newer.as_bytes(), "what a newer server wrote");
        backend.delete(&key(bucket).unwrap()).await.unwrap();
        let two = new();
        two.load().await.unwrap();
        assert_eq!(
            *two.lock(),
            [sample(600, 2), sample(week, 3)],
            "the first is too old, the last was there"
        );
    }
}
