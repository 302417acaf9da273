//! The progress bar of a download. Used by the client of the control plane.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar with rate and time left on a terminal; nothing where there is no terminal.
pub(super) struct ProgressLine(ProgressBar);

impl ProgressLine {
    pub(super) fn new() -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::no_length(),
            false => ProgressBar::hidden(),
        };
        let template = "{bar:32} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn show(&self, bytes: u64, total: Option<u64>) {
        if let Some(total) = total {
            self.0.set_length(total);
        }
        self.0.set_position(bytes);
        if Some(bytes) == total {
            self.0.finish_and_clear();
        }
    }
}
