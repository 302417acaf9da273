//! The version whose rollout last ended well, for new hosts while a later rollout is stopped. It is part of the stored
//! epoch, so that it survives restarts and all servers name the same.

use refit_backend::{Error, Result, Transaction};
use refit_rollout::{Ungrouped, fingerprint, has_ended_well};
use refit_types::{Group, RolloutRecord, Version};

use super::Rollouts;
use crate::fleet::{StoreReading, encoded, plan_key, readable};

impl Rollouts {
    /// Stores the version of the current epoch once its rollout has ended well.
    pub(super) async fn keep_good_version(&self, reading: &StoreReading) -> Result<()> {
        let Some(record) = readable(&reading.snapshot.plan) else { return Ok(()) };
        let good = self.good_version(reading);
        if reading.snapshot.unusable().is_some() || good == record.last_good {
            return Ok(());
        }
        let record = RolloutRecord { last_good: good, ..record.clone() };
        let mut transaction = Transaction::new().put(&plan_key()?, encoded(&record)?);
        for (key, expect) in reading.snapshot.unchanged()? {
            transaction = transaction.expect(&key, expect);
        }
        match self.backend.transact(transaction).await {
            Ok(_) => tracing::info!(
                version = %record.version,
                "the rollout has ended well; new hosts get this version while a later one is stopped"
            ),
            // Another server was faster, or it is looked at again with the next reading.
            Err(Error::Conflict { .. }) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// The version whose rollout last ended well: that of the stored epoch, or of one before.
    pub(super) fn good_version(&self, reading: &StoreReading) -> Option<Version> {
        let record = readable(&reading.snapshot.plan)?;
        let settings = reading.snapshot.settings();
        // With other groups than those of the epoch, nobody can tell how it ended.
        let is_of_these = record.fingerprint == fingerprint(&record.version, record.schedule, &settings);
        let record_of = |group: &Group| reading.group_in(&group.name, record).ok();
        let has_ended_well =
            || has_ended_well(settings.groups(record.schedule), record_of, self.ungrouped_in(record.epoch));
        match is_of_these && has_ended_well() {
            true => Some(record.version.clone()),
            false => record.last_good.clone(),
        }
    }

    /// The hosts that no group takes in that epoch, if this server knows them all.
    fn ungrouped_in(&self, epoch: u64) -> Option<Ungrouped> {
        let view = self.fleet.view();
        let knows_all = view.is_loaded && view.is_certain() && view.unreadable.is_empty();
        let rollout = view.rollout.as_ref().filter(|rollout| knows_all && rollout.plan().epoch == epoch);
        rollout.map(|rollout| rollout.ungrouped())
    }
}
