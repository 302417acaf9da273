//! The attempt that the cluster has told this host to make, until it has ended. Kept in the status, because the process that
//! was told may not be the one that learns of the end. Pure; used by `plan` and `status_file`.

use refit_types::{UpdateTarget, UpdaterStatus};

use crate::host::Answer;

/// The attempt that this host is to make after an answer. `woken_for` is the attempt that the agent woke the updater for:
/// an answer that tells a host to wait names none.
pub(crate) fn told(
    status: &UpdaterStatus,
    answer: Option<&Answer>,
    woken_for: Option<u64>,
) -> Option<UpdateTarget> {
    let Some(answer) = answer else { return status.told.clone() };
    let woken_for = woken_for.filter(|attempt| !has_ended(status, *attempt));
    let attempt = Some(answer.attempt).filter(|attempt| answer.auto_update && *attempt > 0).or(woken_for);
    attempt
        .map(|attempt| UpdateTarget { version: answer.version.clone(), attempt })
        .or_else(|| status.told.clone())
}

/// Whether the cluster no longer asks for that attempt. What keeps it from beginning is still the reason when its time is
/// up, so an attempt with an obstacle ends by its deadline.
pub(crate) fn is_called_off(told: &UpdateTarget, answer: &Answer, has_obstacle: bool) -> bool {
    let is_other = answer.version != told.version || answer.attempt != 0 && answer.attempt != told.attempt;
    is_other || !answer.auto_update && !has_obstacle
}

/// Whether the end of that attempt has been reported.
fn has_ended(status: &UpdaterStatus, attempt: u64) -> bool {
    let failed = status.last_failure.as_ref().map(|failure| failure.attempt);
    let others =
        [&status.held_target, &status.called_off].map(|target| target.as_ref().map(|target| target.attempt));
    failed.into_iter().chain(others.into_iter().flatten()).any(|ended| ended == attempt)
}

#[cfg(test)]
mod tests {
    use refit_types::{Edition, Version};

    use super::*;

    fn answer(version: &str, auto_update: bool, attempt: u64) -> Answer {
        let version = version.parse().unwrap();
        Answer { version, auto_update, attempt, jitter_seconds: 0, edition: Edition::Oss, withheld: None }
    }

    fn target(version: &str, attempt: u64) -> UpdateTarget {
        UpdateTarget { version: version.parse::<Version>().unwrap(), attempt }
    }

    #[test]
    fn an_attempt_is_known_by_the_answer_by_the_agent_or_from_before() {
        let (fresh, told_before) = (
            UpdaterStatus::default(),
            UpdaterStatus { told: Some(target("2.0.0", 3)), ..UpdaterStatus::default() },
        );
        let yes = answer("2.0.0", true, 4);
        let no = answer("2.0.0", false, 0);
        assert_eq!(told(&fresh, Some(&yes), Some(3)), Some(target("2.0.0", 4)), "the answer is newer");
        assert_eq!(told(&fresh, Some(&no), Some(3)), Some(target("2.0.0", 3)));
        assert_eq!(told(&told_before, Some(&no), None), Some(target("2.0.0", 3)));
        assert_eq!(told(&told_before, None, Some(5)), Some(target("2.0.0", 3)), "nothing was answered");
        assert_eq!(told(&fresh, Some(&no), None), None);
        let called_off = UpdaterStatus { called_off: Some(target("2.0.0", 3)), ..fresh };
        assert_eq!(told(&called_off, Some(&no), Some(3)), None, "it has been reported");
    }

    #[test]
    fn an_attempt_ends_when_it_is_not_asked_for_any_more() {
        let told = target("2.0.0", 3);
        for (called_off, version, auto_update, attempt, has_obstacle) in [
            (false, "2.0.0", true, 3, false),
            (true, "2.0.0", true, 4, false),
            (true, "2.1.0", true, 4, true),
            (true, "1.0.0", false, 0, true),
            (true, "2.0.0", false, 0, false),
            (false, "2.0.0", false, 0, true),
        ] {
            let answer = answer(version, auto_update, attempt);
            assert_eq!(is_called_off(&told, &answer, has_obstacle), called_off, "{answer:?}");
        }
    }
}
