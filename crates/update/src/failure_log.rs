//! `versions/failure.log`: what is known of the last version that failed, with the last lines of its agent, for a person
//! on the host. Written and removed with `last_failure` of the status, by `updater` and `unproved`.

use std::io;

use refit_types::{FailedAgent, Version};

use crate::disk::{Disk, remove_durably, write_durably};
use crate::failure::StepFailed;
use crate::host::Moment;
use crate::layout::Layout;
use crate::masking::masked;

/// Only root reads what an agent wrote, even masked.
const MODE: u32 = 0o600;

/// Replaces what is known of the last version that failed.
pub(crate) fn write(
    disk: &dyn Disk,
    layout: &Layout,
    version: &Version,
    attempt: u64,
    failure: &StepFailed,
    at: &Moment,
) -> io::Result<()> {
    let StepFailed { step, reason, agent } = failure;
    let mut text = format!(
        "version: {version}\nattempt: {attempt}\nstep: {step}\nreason: {}\nat: {}\n",
        masked(reason),
        at.wall
    );
    if let Some(FailedAgent { ended, seen_dead_at, last_lines }) = agent.as_deref() {
        text += &format!("agent: {}\n", ended.as_deref().unwrap_or("still ran"));
        if let Some(at) = seen_dead_at {
            text += &format!("first seen dead: {at}\n");
        }
        text += "last lines:\n";
        last_lines.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    write_durably(disk, &layout.failure_log(), text.as_bytes(), MODE)
}

/// Removes it: a version has succeeded since.
pub(crate) fn remove(disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
    remove_durably(disk, &layout.failure_log())
}
