//! Output of commands as text, JSON or YAML, and the tables and times that their texts have in common.

use std::fmt::Display;
use std::io::Write;

use clap_complete::Shell;
use jiff::{Timestamp, Unit};
use refit_types::FailedAgent;
use serde::Serialize;

use crate::exit::Failure;
pub(crate) use refit_types::{counted, in_words};

/// How to show an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// For files.
    Yaml,
}

/// Shows `answer` in the format asked for; `text` makes the form for people.
pub(crate) fn show<T: Serialize>(
    format: Format,
    answer: &T,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match format {
        Format::Text => print(&text()),
        Format::Json => {
            let json = serde_json::to_string_pretty(answer).map_err(Failure::failed)?;
            print(&json)
        }
        Format::Yaml => print(&yaml(answer)?),
    }
}

/// The YAML of one value.
pub(crate) fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(Failure::failed)
}

/// Writes to standard output. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::failed(error)),
        _ => Ok(()),
    }
}

/// Rows under their headings, lined up.
pub(crate) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    table_of(&headings, rows.into_iter().map(Vec::from))
}

/// Like [`table`], for columns that are known only when it is made; every row has as many cells as there are headings.
pub(crate) fn table_of(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines = vec![headings.iter().map(|&heading| heading.to_owned()).collect()];
    lines.extend(rows);
    let width = |n: usize| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let laid_out = |line: &Vec<String>| {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines.iter().map(laid_out).collect::<Vec<_>>().join("\n")
}

/// Labels and values, lined up.
pub(crate) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let facts: Vec<_> = facts.into_iter().collect();
    let width = facts.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
    let line = |(label, value): &(&str, String)| format!("{label:width$}  {value}");
    facts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A time in UTC, and relative to `now` in words.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", utc(at), in_words(at, now))
}

/// A time in UTC, to the second.
pub(crate) fn utc(at: Timestamp) -> String {
    at.round(Unit::Second).unwrap_or(at).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// How the agent of a version that failed ended, and its last lines.
pub(crate) fn failed_agent(agent: &FailedAgent) -> Vec<String> {
    let FailedAgent { ended, seen_dead_at, last_lines } = agent;
    let at = seen_dead_at.map(|at| format!(", first seen at {}", utc(at))).unwrap_or_default();
    let mut lines = vec![match ended {
        Some(ended) => format!("its agent ended: {ended}{at}"),
        None => "its agent still ran when it was judged".into(),
    }];
    if !last_lines.is_empty() {
        lines.push("its last lines:".into());
        lines.extend(last_lines.iter().map(|line| format!("| {line}")));
    }
    lines
}

/// Prints the completion script of a command.
pub(crate) fn completions(shell: Shell, mut command: clap::Command) -> Result<(), Failure> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// A message for people who asked for text; programs get it as an object.
pub(crate) fn done<T: Serialize>(format: Format, answer: &T, message: impl Display) -> Result<(), Failure> {
    show(format, answer, || message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_words_and_in_utc() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let told = |text: &str| moment(text.parse().unwrap(), now);
        assert_eq!(told("2026-01-02T03:04:05.4Z"), "2026-01-02 03:04:05 UTC (now)");
        assert_eq!(told("2026-01-02T03:04:04Z"), "2026-01-02 03:04:04 UTC (1 second ago)");
        assert_eq!(told("2026-01-02T06:10:00Z"), "2026-01-02 06:10:00 UTC (in 3 hours)");
        assert_eq!(told("2026-04-02T03:04:04Z"), "2026-04-02 03:04:04 UTC (in 90 days)");
        assert_eq!(told("2036-01-02T03:04:05Z"), "2036-01-02 03:04:05 UTC (in 10 years)");
    }

    #[test]
    fn columns_line_up_without_trailing_space() {
        let shown = table(["NAME", "N"], [["a".into(), "1".into()], ["longer".into(), "22".into()]]);
        assert_eq!(shown, "NAME    N\na       1\nlonger  22");
    }
}
