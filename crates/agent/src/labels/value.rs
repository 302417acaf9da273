//! The value of a label in what a program printed, or the error that takes its place.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use refit_types::Labels;

/// Why a program gave no value; its text is the label's value then, so that it is seen where the label is.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("error: {}", not_started(.0))]
    NotStarted(io::Error),
    #[error("error: cannot be read: {}", .0.kind())]
    Unreadable(io::Error),
    #[error("error: {}", ended(*.0))]
    Ended(ExitStatus),
    #[error("error: timed out after {}s", .0.as_secs())]
    TimedOut(Duration),
    #[error("error: the agent is about to end")]
    Stopped,
    #[error("error: more than {0} bytes of output")]
    TooMuch(usize),
    #[error("error: the output is not UTF-8")]
    NotText,
    #[error("error: the value is too long or has a control character")]
    NotAValue,
}

fn not_started(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such program",
        io::ErrorKind::PermissionDenied => "the program may not be executed",
        _ => "the program cannot be started",
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended without a status".into(),
    }
}

/// The value in what a program printed: its first line.
pub(super) fn parse(output: &[u8]) -> Result<String, Failure> {
    let line = output.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| Failure::NotText)?;
    Ok(line.trim().to_owned())
}

/// Sets the label to the value, or to the error, and returns whether that changed anything.
pub(super) fn set(labels: &mut Labels, name: &str, found: Result<String, Failure>) -> bool {
    let before = labels.get(name).map(str::to_owned);
    let inserted = found.and_then(|value| labels.insert(name, &value).map_err(|_| Failure::NotAValue));
    let failure = inserted.err();
    if let Some(failure) = &failure
        && let Err(problem) = labels.insert(name, &failure.to_string())
    {
        tracing::error!(label = name, %problem, "cannot set a label");
    }
    let changed = labels.get(name) != before.as_deref();
    if changed && let Some(failure) = failure {
        tracing::error!(label = name, problem = %failure, "the command of a label failed");
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_value() {
        for (output, value) in [
            (&b"x86_64\n"[..], "x86_64"),
            (b"  a b \r\nsecond\n", "a b"),
            (b"no end", "no end"),
            (b"", ""),
            (b"\nsecond", ""),
            (b"good\n\xff", "good"),
        ] {
            assert_eq!(parse(output).unwrap(), value);
        }
        assert!(matches!(parse(b"\xff\n"), Err(Failure::NotText)));
    }

    #[test]
    fn what_is_no_value_is_said_in_its_place() {
        let mut labels = Labels::default();
        assert!(set(&mut labels, "a", Ok("1".into())) && !set(&mut labels, "a", Ok("1".into())));
        let refused = "error: the value is too long or has a control character";
        for bad in ["x".repeat(257), "a\u{7}b".into()] {
            set(&mut labels, "a", Ok(bad));
            assert_eq!(labels.get("a"), Some(refused));
        }
        assert!(set(&mut labels, "a", Err(Failure::TimedOut(Duration::from_secs(10)))));
        assert_eq!(labels.get("a"), Some("error: timed out after 10s"));
        for (raw, text) in [(0x100, "error: exit status 1"), (9, "error: ended by signal 9")] {
            set(&mut labels, "a", Err(Failure::Ended(ExitStatus::from_raw(raw))));
            assert_eq!(labels.get("a"), Some(text));
        }
    }
}
