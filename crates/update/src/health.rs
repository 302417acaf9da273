//! Whether the version that was switched to works.

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use refit_types::Version;

use crate::host::{Agent, Clock, Condition};

/// An agent that works is ready well within this time, on a slow host with a large database too.
const WITHIN: Duration = Duration::from_secs(60);
/// How long it must stay so: one that crashes in a loop is ready now and then.
const HOLDS_FOR: Duration = Duration::from_secs(5);
/// How often it is asked.
const EVERY: Duration = Duration::from_millis(200);
/// How long an answer of the control plane to the updater counts: it is not there to be asked by every host that
/// fails, five times a second.
const REACHED_FOR: Duration = Duration::from_secs(5);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It works.
    Healthy,
    /// It does not, in words.
    Unhealthy(String),
}

/// Waits until an agent of that version, started since then, says that it works and goes on saying so.
pub(crate) fn wait(
    agent: &dyn Agent,
    clock: &dyn Clock,
    reaches: &dyn Fn() -> bool,
    version: &Version,
    since: Timestamp,
) -> Verdict {
    let begin = clock.now();
    let asked = Cell::new(None::<(Timestamp, bool)>);
    let reaches = || match asked.get() {
        Some((at, reached)) if elapsed(at, clock.now()) < REACHED_FOR => reached,
        _ => {
            let reached = reaches();
            asked.set(Some((clock.now(), reached)));
            reached
        }
    };
    let (mut good_since, mut last) = (None::<(Timestamp, Condition)>, "no agent answers".to_owned());
    loop {
        let now = clock.now();
        match judge(agent.condition(), &reaches, version, since) {
            Ok(condition) => match &good_since {
                Some((at, first)) if first.started_at == condition.started_at => {
                    if elapsed(*at, now) >= HOLDS_FOR {
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
        if elapsed(begin, now) >= WITHIN + HOLDS_FOR {
            let reason = match good_since {
                Some(_) => "the agent starts again and again".into(),
                None => last,
            };
            return Verdict::Unhealthy(format!("{reason} after {} s", WITHIN.as_secs()));
        }
        clock.sleep(EVERY);
    }
}

/// Whether what the agent says is said by the right version, of after the restart.
fn judge(
    condition: Option<Condition>,
    reaches: &dyn Fn() -> bool,
    version: &Version,
    since: Timestamp,
) -> Result<Condition, String> {
    let Some(condition) = condition else { return Err("no agent answers".into()) };
    if condition.version != *version {
        return Err(format!("the agent that answers is {}", condition.version));
    }
    // To the second: that is how exactly a service manager may know when it started something.
    if condition.started_at.as_second() < since.as_second() {
        return Err("the agent ignored the restart".into());
    }
    // A host without a network must not make a good version look broken.
    if !condition.connected && reaches() {
        let reason = condition.reason.as_deref().unwrap_or("it does not say why");
        return Err(format!("the agent does not reach the control plane, and the updater does: {reason}"));
    }
    Ok(condition)
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or_default()
}
