//! Lays out one snapshot for a terminal of a given size. No I/O.

use super::snapshot::{Doing, Group, Seen, Snapshot};

/// Pieces of text, each with the codes of its colour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(&'static str, String)>);

/// Columns and rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

const PLAIN: &str = "";
const BOLD: &str = "1";
const DIM: &str = "2";
const GOOD: &str = "32";
const MOVING: &str = "36";
const BAD: &str = "1;31";
/// With the longest that is usually said of a group, 80 columns are enough.
const BAR: usize = 15;
/// A host with what it does, side by side where there are many.
const CELL: usize = 38;

impl Line {
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self(vec![(PLAIN, text.into())])
    }

    fn and(mut self, code: &'static str, text: impl Into<String>) -> Self {
        self.0.push((code, text.into()));
        self
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Cut to a number of columns.
    fn cut(self, columns: usize) -> Self {
        let mut left = columns;
        let mut pieces = Vec::new();
        for (code, text) in self.0 {
            let text: String = text.chars().take(left).collect();
            left -= text.chars().count();
            pieces.push((code, text));
        }
        Self(pieces)
    }

    fn padded(self, columns: usize) -> Self {
        let missing = columns.saturating_sub(self.len());
        self.cut(columns).and(PLAIN, " ".repeat(missing))
    }

    /// The line with its terminal codes.
    pub(super) fn written(&self, colour: bool) -> String {
        let piece = |(code, text): &(&str, String)| match colour && !code.is_empty() && !text.is_empty() {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.clone(),
        };
        self.0.iter().map(piece).collect()
    }
}

/// The snapshot, in no more lines than fit, none of them too long; `notes` are below it.
pub(super) fn frame(snapshot: &Snapshot, clock: &str, notes: &[String], size: Size) -> Vec<Line> {
    let runs = |host: &&Seen| matches!(host.doing(&snapshot.version), Doing::Upgraded | Doing::Proves);
    let upgraded = snapshot.hosts.iter().filter(runs).count();
    let mut lines = vec![
        Line::default()
            .and(DIM, format!("{clock:>7}  "))
            .and(BOLD, format!("{upgraded} of {} hosts run {}", snapshot.hosts.len(), snapshot.version)),
        Line::default(),
    ];
    lines.extend(snapshot.groups.iter().map(group));
    lines.push(Line::default());
    // The last row stays free for the cursor.
    let rows = size.rows.saturating_sub(1);
    let notes: Vec<String> =
        notes.iter().flat_map(|note| wrapped(note, size.columns.saturating_sub(1))).collect();
    let room = rows.saturating_sub(lines.len() + notes.len());
    lines.extend(hosts(snapshot, room, size.columns));
    lines.extend(notes.iter().map(|note| Line::default().and(BOLD, format!(" {note}"))));
    lines.truncate(rows);
    lines.into_iter().map(|line| line.cut(size.columns)).collect()
}

/// A text in lines of so many columns, broken between words where that can be.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut();
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn group(group: &Group) -> Line {
    let (code, mark) = match group.state.as_str() {
        "succeeded" => (GOOD, "✓"),
        "active" => (MOVING, "▶"),
        "halted" => (BAD, "✗"),
        _ => (DIM, "·"),
    };
    let part = |count: u32, before: u32| {
        let end = |count: u32| (BAR * count as usize).checked_div(group.hosts as usize).unwrap_or_default();
        end(before + count).min(BAR) - end(before).min(BAR)
    };
    let (upgraded, in_flight) = (part(group.upgraded, 0), part(group.in_flight, group.upgraded));
    let failed = part(group.failed, group.upgraded + group.in_flight);
    let mut line = Line::default()
        .and(PLAIN, " ")
        .and(code, format!("{mark} {:<11} {:<10}", group.name, group.state))
        .and(GOOD, "█".repeat(upgraded))
        .and(MOVING, "▒".repeat(in_flight))
        .and(BAD, "×".repeat(failed))
        .and(DIM, "·".repeat(BAR - (upgraded + in_flight + failed).min(BAR)))
        .and(PLAIN, format!("  {}/{} upgraded", group.upgraded, group.hosts));
    if group.in_flight > 0 || group.state == "active" {
        line = line.and(MOVING, format!(", {} in flight (at most {})", group.in_flight, group.limit));
    }
    if group.failed > 0 {
        line = line.and(BAD, format!(", {} failed", group.failed));
    }
    if !group.waiting.is_empty() {
        line = line.and(if group.state == "halted" { BAD } else { DIM }, format!(", {}", group.waiting));
    }
    line
}

/// One below the other if there is room, side by side otherwise; if that is not enough, those that move.
fn hosts(snapshot: &Snapshot, room: usize, columns: usize) -> Vec<Line> {
    let cells: Vec<(Doing, Line)> = snapshot
        .hosts
        .iter()
        .map(|host| (host.doing(&snapshot.version), cell(host, &snapshot.version)))
        .collect();
    if cells.len() <= room {
        return cells.into_iter().map(|(_, cell)| cell).collect();
    }
    let abreast = (columns / CELL).max(1);
    let most = room.saturating_mul(abreast);
    let mut chosen: Vec<usize> = (0..cells.len()).collect();
    if cells.len() > most {
        // Hosts that are moving are shown before those that have finished or not started.
        chosen.sort_by_key(|at| matches!(cells[*at].0, Doing::Waits | Doing::Upgraded));
        chosen.truncate(most);
        chosen.sort_unstable();
    }
    let rows = chosen.len().div_ceil(abreast);
    let row = |row: usize| {
        let picked = chosen.iter().skip(row).step_by(rows).filter_map(|at| cells.get(*at));
        let pieces = picked.flat_map(|(_, cell)| cell.clone().padded(CELL - 1).and(PLAIN, " ").0);
        Line(pieces.collect())
    };
    (0..rows).map(row).collect()
}

fn cell(host: &Seen, target: &str) -> Line {
    let (code, mark) = match host.doing(target) {
        Doing::Waits => (DIM, "·"),
        Doing::Fetches => (MOVING, "↓"),
        Doing::Tries | Doing::Proves => (MOVING, "▒"),
        Doing::Upgraded => (GOOD, "✓"),
        Doing::GoesBack | Doing::WentBack | Doing::Failed => (BAD, "✗"),
    };
    Line::default()
        .and(PLAIN, " ")
        .and(code, mark)
        .and(PLAIN, format!(" {:<13} {:<6} ", host.name, host.runs()))
        .and(code, host.in_words(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(hosts: usize) -> Snapshot {
        let host = |at: usize| Seen {
            name: format!("production{at}"),
            group: "production",
            version: "1.0.0".parse().ok(),
            is_connected: true,
            outcome: if at + 1 == hosts { "in_flight".into() } else { "unchanged".into() },
            failure: None,
            active: "1.0.0".parse().ok(),
            is_switching: false,
            has_tried: false,
        };
        let group = Group {
            name: "production".into(),
            state: "active".into(),
            hosts: hosts as u32,
            upgraded: 1,
            in_flight: 1,
            failed: 1,
            limit: 2,
            waiting: "it is long to say why this does not go on as it should".into(),
        };
        Snapshot { version: "1.1.0".into(), groups: vec![group; 3], hosts: (0..hosts).map(host).collect() }
    }

    #[test]
    fn a_frame_fits_into_any_terminal() {
        for (columns, rows) in [(80, 24), (200, 60), (20, 5), (1, 1), (0, 0), (80, 10), (40, 24)] {
            for hosts in [0, 3, 6, 50] {
                let notes = ["a note".to_owned()];
                let shown = frame(&snapshot(hosts), "12.3s", &notes, Size { columns, rows });
                assert!(shown.len() <= rows.saturating_sub(1), "{hosts} hosts in {columns}x{rows}");
                assert!(shown.iter().all(|line| line.len() <= columns), "{hosts} hosts in {columns}x{rows}");
            }
        }
    }

    #[test]
    fn notes_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
        assert_eq!(wrapped("a-long-word b", 3), ["a-long-word", "b"]);
    }

    #[test]
    fn those_that_move_are_shown_first() {
        let text = |hosts, rows| {
            let shown = frame(&snapshot(hosts), "1s", &[], Size { columns: 80, rows });
            shown.iter().map(|line| line.written(false) + "\n").collect::<String>()
        };
        let small = text(50, 10);
        assert!(small.contains("production49") && small.contains("fetches 1.1.0"), "{small}");
        assert!(!small.contains("production48"), "{small}");
        let large = text(50, 60);
        assert!((0..50).all(|at| large.contains(&format!("production{at} "))), "{large}");
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        let shown = frame(&snapshot(3), "1s", &[], Size { columns: 100, rows: 24 });
        let plain: String = shown.iter().map(|line| line.written(false)).collect();
        assert!(!plain.contains('\u{1b}'));
        assert!(
            plain.contains("█") && plain.contains("1 failed") && plain.contains("1 in flight (at most 2)")
        );
        assert!(shown.iter().any(|line| line.written(true).contains("\u{1b}[32m█")));
    }
}
