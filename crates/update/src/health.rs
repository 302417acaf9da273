//! Whether the version that was switched to is healthy. Asks the agent until it has been healthy for a while or time is
//! up; called by `switch`.

use std::cell::Cell;
use std::time::Duration;

use refit_types::Version;

use crate::host::{Agent, Clock, Condition, StartId};

/// How long the agent may take to become ready, on a slow host with a large database too.
const WITHIN: Duration = Duration::from_secs(60);
/// How long it must stay ready: an agent that crashes in a loop is ready now and then.
const HOLDS_FOR: Duration = Duration::from_secs(5);
/// How often the agent is asked.
const EVERY: Duration = Duration::from_millis(200);
/// How long an answer of the control plane counts, so that failing hosts do not ask it five times a second.
const REACHED_FOR: Duration = Duration::from_secs(5);

/// The result of the wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The agent is healthy.
    Healthy,
    /// It is not, and why.
    Unhealthy(String),
}

/// Waits until an agent of the version, of another start than `before`, is healthy and stays so. `is_reachable` asks the control
/// plane: an agent that is not connected is unhealthy only while the updater can reach it.
pub(crate) fn wait(
    agent: &dyn Agent,
    clock: &dyn Clock,
    is_reachable: &dyn Fn() -> bool,
    version: &Version,
    before: Option<&StartId>,
) -> Verdict {
    let begin = clock.uptime();
    let asked = Cell::new(None::<(Duration, bool)>);
    let is_reachable = || match asked.get() {
        Some((at, reached)) if clock.uptime().saturating_sub(at) < REACHED_FOR => reached,
        _ => {
            let reached = is_reachable();
            asked.set(Some((clock.uptime(), reached)));
            reached
        }
    };
    let (mut good_since, mut last) = (None::<(Duration, Condition)>, "no agent answers".to_owned());
    loop {
        let now = clock.uptime();
        match check(agent.condition(), &is_reachable, version, before) {
            Ok(condition) => match &good_since {
                Some((at, first)) if first.start == condition.start => {
                    if now.saturating_sub(*at) >= HOLDS_FOR {
                        return Verdict::Healthy;
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
            return Verdict::Unhealthy(format!("{reason} after {} s", WITHIN.as_secs()));
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
