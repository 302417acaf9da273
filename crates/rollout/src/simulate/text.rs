//! A simulated timeline as text for a terminal.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};
use refit_types::GroupState;

use super::timeline::{GroupTimeline, Timeline};
use crate::blocked_by::in_words;
use crate::table::{Align, fitted, table};

/// As wide as a terminal that people really have.
const COLUMNS: usize = 100;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Timeline {
    /// A table, a bar for each group over time, and what an operator should know; 100 columns at most.
    pub fn to_text(&self) -> String {
        let mut text = self.summary();
        if !self.groups.is_empty() {
            text.push_str("\n\n");
            text.push_str(&self.table());
            text.push_str("\n\n");
            text.push_str(&self.bars());
        }
        text.push_str("\n\n");
        text.push_str(match self.limit_passed {
            true => "A limit of hosts in flight would be PASSED.",
            false => "No limit of hosts in flight would be passed.",
        });
        for warning in &self.warnings {
            text.push('\n');
            text.push_str(&wrapped(&format!("! {warning}")));
        }
        text
    }

    fn summary(&self) -> String {
        let took = in_words(self.end.duration_since(self.start));
        let how = match self.finished {
            true => format!("over after {took}"),
            false => format!("not over after {took}"),
        };
        let outcomes = &self.outcomes;
        let counts = [
            (outcomes.upgraded, "upgraded"),
            (outcomes.had_it, "had it"),
            (outcomes.failed, "failed"),
            (outcomes.timed_out, "timed out"),
            (outcomes.in_flight, "in flight"),
            (outcomes.held, "held"),
            (outcomes.away, "away"),
            (outcomes.not_started, "not started"),
        ];
        let told: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        format!(
            "Version {} from {} UTC: {how}\n{}",
            self.version,
            self.start.strftime("%Y-%m-%d %H:%M"),
            wrapped(&format!("{} hosts: {}", self.hosts, told.join(", ")))
        )
    }

    fn table(&self) -> String {
        let rows = self.groups.iter().map(|group| {
            vec![
                group.name.to_string(),
                group.state.as_str().to_owned(),
                moment(group.opened),
                moment(group.ended),
                format!("{}/{}", group.outcomes.upgraded + group.outcomes.had_it, group.hosts),
                group.outcomes.failed.to_string(),
                group.outcomes.timed_out.to_string(),
                format!("{}/{}", group.most_in_flight, group.limit),
            ]
        });
        let headings =
            ["GROUP", "STATE", "OPENED (UTC)", "ENDED (UTC)", "ON IT", "FAILED", "TIMED OUT", "MOST AT ONCE"];
        use Align::{Left, Right};
        table(&headings, &[Left, Left, Left, Left, Right, Right, Right, Right], rows, COLUMNS)
    }

    fn bars(&self) -> String {
        let names = self.groups.iter().map(|group| group.name.as_str().chars().count());
        let width = names.max().unwrap_or_default().min(24);
        let columns = COLUMNS - width - 2 - 5;
        let mut text = String::new();
        for group in &self.groups {
            let share = group.samples.last().map_or(0, |last| percent(last.upgraded, last.members));
            let bar: String = (0..columns).map(|column| self.block(group, column, columns)).collect();
            let name = fitted(group.name.as_str(), width);
            let _ = writeln!(text, "{name:width$}  {bar} {share:>3}%");
        }
        let (from, to) = (self.start.strftime("%m-%d %H:%M"), self.end.strftime("%m-%d %H:%M UTC"));
        let (from, to) = (from.to_string(), to.to_string());
        let gap = columns.saturating_sub(from.len() + to.len());
        let _ = writeln!(text, "{:width$}  {from}{:gap$}{to}", "", "");
        let _ = write!(text, "{:width$}  · not open yet   ▁▂▃▄▅▆▇█ share upgraded   × halted", "");
        text
    }

    /// What a column of a group's bar shows: how far it was at the end of that stretch of time.
    fn block(&self, group: &GroupTimeline, column: usize, columns: usize) -> char {
        let whole = self.end.duration_since(self.start).as_secs();
        let end = i64::try_from((column + 1) * usize::try_from(whole).unwrap_or(0) / columns).unwrap_or(0);
        let at = self.start.saturating_add(SignedDuration::from_secs(end)).unwrap_or(self.end);
        let is_halted = matches!(group.state, GroupState::Halted(_));
        if is_halted && group.ended.is_some_and(|ended| ended <= at) {
            return '×';
        }
        match group.sample_at(at) {
            None if group.opened.is_some_and(|opened| opened <= at) => LEVELS[0],
            None => '·',
            Some(sample) if sample.members == 0 => LEVELS[7],
            Some(sample) => {
                let level = u64::from(sample.upgraded) * 8 / u64::from(sample.members);
                LEVELS[usize::try_from(level).unwrap_or(0).clamp(1, 8) - 1]
            }
        }
    }
}

fn moment(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".into(), |at| at.strftime("%m-%d %H:%M").to_string())
}

/// Rounded down, so that 100% is all.
pub(super) fn percent(part: u32, whole: u32) -> u32 {
    let share = (u64::from(part) * 100).checked_div(whole.into()).unwrap_or(100);
    u32::try_from(share).unwrap_or(100)
}

/// Broken between words; a line that goes on is set in.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
            Some(_) => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let told = wrapped(&"word ".repeat(40));
        assert!(told.lines().count() > 1 && told.lines().all(|line| line.chars().count() <= COLUMNS));
        assert_eq!(wrapped("a b"), "a b");
    }

    #[test]
    fn a_hundred_percent_is_all() {
        assert_eq!([percent(0, 0), percent(999, 1000), percent(1000, 1000)], [100, 99, 100]);
    }
}
