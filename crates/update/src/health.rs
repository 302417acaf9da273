//! Whether the version that was switched to is healthy. Asks the agent until it has been healthy for a while or time is
//! up; called by `switch`.

use std::cell::Cell;
use std::time::Duration;

use refit_types::Version;

use crate::RunEnd;
use crate::host::{Agent, Clock, Condition, StartId};

/// How long the agent may take to become ready, on a slow host with a large database too.
const WITHIN: Duration = Duration::from_secs(60);
/// How long it must stay ready: an agent that crashes in a loop is ready now and then.
const HOLDS_FOR: Duration = Duration::from_secs(5);
/// How often the agent is asked.
const EVERY: Duration = Duration::from_millis(200);
/// How long an answer of the control plane counts, so that failing hosts do not ask it five times a second.
const REACHED_FOR: Duration = Duration::from_secs(5);

/// How often the service manager is asked whether the agent has ended.
const END_EVERY: Duration = Duration::from_secs(1);

/// An agent that is not healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unhealthy {
    /// Why, in words.
    pub(crate) reason: String,
    /// How it ended, if it has.
    pub(crate) end: Option<RunEnd>,
}

/// Asked during the wait, besides the agent.
pub(crate) struct Questions<'a> {
    /// Whether the updater reaches the control plane: an agent that is not connected is unhealthy only then.
    pub(crate) is_reachable: &'a dyn Fn() -> bool,
    /// How the agent has ended since its start, if it has. One that has is unhealthy at once.
    pub(crate) end: &'a dyn Fn() -> Option<RunEnd>,
}

/// Waits until an agent of the version, of another start than `before`, is healthy and stays so.
pub(crate) fn wait(
    agent: &dyn Agent,
    clock: &dyn Clock,
    Questions { is_reachable, end }: Questions<'_>,
    version: &Version,
    before: Option<&StartId>,
) -> Result<(), Unhealthy> {
    let begin = clock.awake();
    let asked = Cell::new(None::<(Duration, bool)>);
    let is_reachable = || match asked.get() {
        Some((at, reached)) if clock.awake().saturating_sub(at) < REACHED_FOR => reached,
        _ => {
            let reached = is_reachable();
            asked.set(Some((clock.awake(), reached)));
            reached
        }
    };
    let mut end_asked = None::<Duration>;
    let (mut good_since, mut last) = (None::<(Duration, Condition)>, "no agent answers".to_owned());
    loop {
        let now = clock.awake();
        let is_good = good_since.as_ref().is_some_and(|(at, _)| now.saturating_sub(*at) >= HOLDS_FOR);
        if is_good || end_asked.is_none_or(|at| now.saturating_sub(at) >= END_EVERY) {
            end_asked = Some(now);
            if let Some(end) = end() {
                return Err(Unhealthy { reason: format!("the agent ended ({end})"), end: Some(end) });
            }
        }
        match check(agent.condition(), &is_reachable, version, before) {
            Ok(condition) => match &good_since {
                Some((_, first)) if first.start == condition.start => {
                    if is_good {
                        return Ok(());
                    }
                }
                _ => good_since = Some((now, condition)),
            },
            Err(reason) => {
                good_since = None;
                last = reason;
            }
        }
        if now.saturating_sub(begin) >= WITHIN + HOLDS_FOR {
            let reason = match good_since {
                Some(_) => "the agent starts again and again".into(),
                None => last,
            };
            let reason = format!("{reason} after {} s", WITHIN.as_secs());
            return Err(Unhealthy { reason, end: None });
        }
        clock.sleep(EVERY);
    }
}

/// Whether the agent that answers is of the right version, started after the switch, and connected.
fn check(
    condition: Option<Condition>,
    is_reachable: &dyn Fn() -> bool,
    version: &Version,
    before: Option<&StartId>,
) -> Result<Condition, String> {
    let Some(condition) = condition else { return Err("no agent answers".into()) };
    if condition.version != *version {
        return Err(format!("the agent that answers is {}", condition.version));
    }
    if before == Some(&condition.start) {
        return Err("the agent ignored the restart".into());
    }
    // A good version on a host without a network is not broken.
    if !condition.connected && is_reachable() {
        let reason = condition.reason.as_deref().unwrap_or("it does not say why");
        return Err(format!("the agent does not reach the control plane, and the updater does: {reason}"));
    }
    Ok(condition)
}
