//! The output of the demo: a redrawn frame on a terminal, a line for each change elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use anstream::{AutoStream, ColorChoice};

use super::frame::{Line, Size, frame};
use super::snapshot::Snapshot;
use crate::exit::Failure;

/// Shows progress: on a terminal by a frame that is redrawn, elsewhere by a line for each change.
#[derive(Debug)]
pub(super) struct Show {
    since: Instant,
    last: Snapshot,
    screen: Option<Screen>,
    notes: Vec<String>,
}

impl Show {
    pub(super) fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let screen = (std::io::stdout().is_terminal() && !is_dumb).then(Screen::new);
        Self { since: Instant::now(), last: Snapshot::default(), screen, notes: Vec::new() }
    }

    /// From now on it is a rollout.
    pub(super) fn begins(&mut self, snapshot: Snapshot) {
        self.last = snapshot;
    }

    /// What was shown last.
    pub(super) fn last(&self) -> &Snapshot {
        &self.last
    }

    fn clock(&self) -> String {
        format!("{:.1}s", self.since.elapsed().as_secs_f64())
    }

    /// A paragraph of text.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(screen) = &mut self.screen {
            screen.clear()?;
        }
        write(&format!("{text}\n"))
    }

    /// A completed step.
    pub(super) fn step(&mut self, text: &str) -> Result<(), Failure> {
        let line = format!("{:>7}  {text}", self.clock());
        self.text(&line)
    }

    /// A step in progress; shown on a terminal only.
    pub(super) fn progress(&mut self, text: &str) -> Result<(), Failure> {
        let line = Line::of(format!("{:>7}  {text} …", self.clock()));
        match &mut self.screen {
            Some(screen) => screen.draw(&[line]),
            None => Ok(()),
        }
    }

    /// Something that holds from now on; on a terminal below the frame.
    pub(super) fn note(&mut self, text: &str) -> Result<(), Failure> {
        if self.screen.is_none() {
            return self.text(text);
        }
        self.notes = text.lines().map(str::to_owned).collect();
        Ok(())
    }

    /// Shows a new snapshot.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let clock = self.clock();
        match &mut self.screen {
            Some(screen) => screen.draw(&frame(snapshot, &clock, &self.notes, screen.size()))?,
            None => {
                for change in snapshot.changes_since(&self.last) {
                    self.step(&change)?;
                }
            }
        }
        self.last = snapshot.clone();
        Ok(())
    }

    /// Leaves the last frame where it is, and goes on below it.
    pub(super) fn rest(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.drawn = 0;
        }
    }
}

/// Lines at the end of what a terminal shows, written over again and again.
#[derive(Debug)]
struct Screen {
    drawn: usize,
    colour: bool,
}

const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
/// Terminals that know these show a frame when it is whole; others pass over them.
const BEGIN: &str = "\u{1b}[?2026h";
const END: &str = "\u{1b}[?2026l";

impl Screen {
    fn new() -> Self {
        let colour = AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
        let _ = write(HIDE_CURSOR);
        Self { drawn: 0, colour }
    }

    fn size(&self) -> Size {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(Size { columns: 80, rows: 24 }, |size| Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        })
    }

    fn back(&self) -> String {
        match self.drawn.min(self.size().rows.saturating_sub(1)) {
            0 => "\r".into(),
            lines => format!("\r\u{1b}[{lines}A"),
        }
    }

    /// Each line ends what was there before; nothing is cleared first, which would flicker.
    fn draw(&mut self, lines: &[Line]) -> Result<(), Failure> {
        let body: String =
            lines.iter().map(|line| format!("{}\u{1b}[K\n", line.written(self.colour))).collect();
        write(&format!("{BEGIN}{}{body}\u{1b}[J{END}", self.back()))?;
        self.drawn = lines.len();
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Failure> {
        let back = self.back();
        self.drawn = 0;
        write(&format!("{back}\u{1b}[J"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(SHOW_CURSOR);
    }
}

/// A closed pipe ends the demo: nobody reads its output.
fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::failed(format!("nobody reads what the demonstration tells: {error}")))
}
