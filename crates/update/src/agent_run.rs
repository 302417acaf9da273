//! One run of the agent: how it ended and what it wrote last. The service manager is asked for it when a version fails,
//! so that the operator learns why; `masking` and the bounds here decide what is stored and what leaves the host.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use refit_types::FailedAgent;
use serde::{Deserialize, Serialize};

use crate::masking::masked;

/// Lines that are kept of an agent.
pub(crate) const MAX_LINES: usize = 20;
/// Characters that are kept of a line on the host.
pub(crate) const MAX_LINE_CHARS: usize = 500;
/// Characters of a line that travel in heartbeats, and bytes of all lines: the control plane keeps those of every host
/// that failed.
const MAX_SENT_LINE_CHARS: usize = 200;
const MAX_SENT_BYTES: usize = 2048;

/// The moment before an agent is started or reloaded, by what its service manager counts. Only the manager that made it
/// knows what the numbers mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunMark {
    /// A number that changes when a process of the agent ends.
    pub ended: u64,
    /// Automatic restarts of the agent.
    pub restarts: u64,
    /// Where the agent's output was at that moment.
    pub output: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It ended unseen, and the service manager has started another.
    Restarted,
    /// Somebody asked the service manager to stop it.
    Stopped,
}

impl From<ExitStatus> for RunEnd {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Signal(signal),
            None => Self::Exit(status.code().unwrap_or_default()),
        }
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "exit status {status}"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "signal {number} ({signal})"),
                Err(_) => write!(f, "signal {number}"),
            },
            Self::Stopped => f.write_str("stopped on request"),
            Self::Restarted => f.write_str("not seen, it was started again"),
        }
    }
}

/// What is known of the agent of a version that failed. The lines come from the service manager, oldest first.
pub(crate) fn failed_agent(end: Option<RunEnd>, seen_at: Timestamp, lines: &[String]) -> FailedAgent {
    let start = lines.len().saturating_sub(MAX_LINES);
    FailedAgent {
        ended: end.map(|end| end.to_string()),
        seen_dead_at: end.map(|_| seen_at),
        last_lines: lines[start..].iter().map(|line| shortened(&masked(line), MAX_LINE_CHARS)).collect(),
    }
}

/// The part that travels in heartbeats: the newest lines that fit.
pub(crate) fn sent(agent: &FailedAgent) -> FailedAgent {
    let mut room = MAX_SENT_BYTES;
    let mut last_lines: Vec<String> = Vec::new();
    for line in agent.last_lines.iter().rev() {
        let line = shortened(line, MAX_SENT_LINE_CHARS);
        match room.checked_sub(line.len() + 1) {
            Some(left) => room = left,
            None => break,
        }
        last_lines.push(line);
    }
    last_lines.reverse();
    FailedAgent { last_lines, ..agent.clone() }
}

fn shortened(line: &str, most: usize) -> String {
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_by_number_and_name() {
        assert_eq!(RunEnd::Exit(3).to_string(), "exit status 3");
        assert_eq!(RunEnd::Signal(11).to_string(), "signal 11 (SIGSEGV)");
        assert_eq!(RunEnd::Signal(99).to_string(), "signal 99");
        assert_eq!(RunEnd::from(ExitStatus::from_raw(0x300)), RunEnd::Exit(3));
        assert_eq!(RunEnd::from(ExitStatus::from_raw(0x8b)), RunEnd::Signal(11), "with a core dump");
    }

    #[test]
    fn what_leaves_the_host_is_masked_short_and_new() {
        let mut lines: Vec<String> = (0..30).map(|n| format!("{n} {}", "ä".repeat(1000))).collect();
        lines.push("join with --token 6ac3a7390d7ae9beb543f169700ec9da".into());
        let kept = failed_agent(Some(RunEnd::Exit(1)), Timestamp::UNIX_EPOCH, &lines);
        assert_eq!(kept.last_lines.len(), MAX_LINES);
        assert!(kept.last_lines.iter().all(|line| line.chars().count() <= MAX_LINE_CHARS + 1));
        let sent = sent(&kept);
        let bytes: usize = sent.last_lines.iter().map(String::len).sum();
        assert!(bytes <= MAX_SENT_BYTES && sent.last_lines.len() > 2, "{bytes}");
        assert_eq!(sent.last_lines.last().unwrap(), "join with --token ***");
        assert_eq!(sent.ended.as_deref(), Some("exit status 1"));
    }
}
