//! What switches leave behind: files that were only kept for a rollback, and files that a cut kept from their place. Removed
//! when a switch is final, and by every command and `recover` after an interruption, so that the same files remain wherever
//! it was cut.

use std::io;

use refit_types::Version;

use crate::archive::PART;
use crate::disk::{remove_dir_durably, remove_durably, temporary};
use crate::environment::Environment;
use crate::versions::{active_version, is_complete};
use crate::{backup, links, units};

impl Environment<'_> {
    /// Removes what is left of switches. Changes nothing where nothing is. Only called with the lock, while no switch is
    /// under way.
    pub(crate) fn remove_leftovers(&self) {
        if let Err(error) = self.try_remove_leftovers() {
            tracing::warn!("Files kept for a rollback could not be removed: {error}");
        }
    }

    fn try_remove_leftovers(&self) -> io::Result<()> {
        remove_dir_durably(self.disk, &self.layout.first_backup())?;
        self.point_way_back()?;
        units::remove_saved(self.disk, self.layout, self.profile)?;
        links::remove_replaced(self.disk, self.layout)?;
        self.remove_temporaries()?;
        match active_version(self.disk, self.layout)? {
            Some(active) if is_complete(self.disk, self.layout, &active)? => {
                links::remove_dangling(self.disk, self.layout, self.profile, &active)
            }
            _ => Ok(()),
        }
    }

    /// Files that were begun under another name and never got their own.
    fn remove_temporaries(&self) -> io::Result<()> {
        let layout = self.layout;
        let own = [
            layout.active(),
            layout.active_back(),
            layout.journal(),
            layout.config(),
            layout.status(),
            layout.failure_log(),
        ];
        let placed = links::written_paths(layout, self.profile).into_iter();
        let placed = placed.chain(units::written_paths(layout, self.profile));
        for path in own.into_iter().chain(placed) {
            remove_durably(self.disk, &temporary(&path))?;
        }
        if self.disk.kind(&layout.versions())?.is_none() {
            return Ok(());
        }
        for name in self.disk.list(&layout.versions())? {
            if name.to_str().is_some_and(|name| name.ends_with(PART)) {
                remove_dir_durably(self.disk, &layout.versions().join(&name))?;
                continue;
            }
            let Some(version) = name.to_str().and_then(|name| name.parse::<Version>().ok()) else { continue };
            for path in [layout.proved(&version), layout.unproved(&version)] {
                remove_durably(self.disk, &temporary(&path))?;
            }
            backup::remove_unfinished(self.disk, layout, &version)?;
        }
        Ok(())
    }
}
