//! What the agent writes: passed on to the supervisor's own output, and its last lines kept for an updater that asks why
//! a version failed.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::agent_run::{MAX_LINE_CHARS, MAX_LINES};

/// How long the rest of the output may take after the agent has ended.
const LAST_BYTES_WITHIN: Duration = Duration::from_secs(1);
/// Bytes that are kept of a line: a character has up to four.
const MAX_LINE_BYTES: usize = MAX_LINE_CHARS * 4;

/// The last lines of the agent, over all of its processes.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentOutput(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    written: u64,
    last: VecDeque<String>,
}

/// The output of one process, which is being read.
#[derive(Debug)]
pub(super) struct OutputReader {
    closed: Vec<Receiver<()>>,
}

impl OutputReader {
    /// Waits until all that a process wrote has been read, unless something that it left behind still writes.
    pub(super) fn finish(self) {
        for closed in self.closed {
            let _ = closed.recv_timeout(LAST_BYTES_WITHIN);
        }
    }
}

impl AgentOutput {
    /// How many lines were written so far, and the last of those after that one.
    pub(super) fn since(&self, line: u64) -> (u64, Vec<String>) {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = usize::try_from(lines.written.saturating_sub(line)).unwrap_or(usize::MAX);
        let skipped = lines.last.len().saturating_sub(new);
        (lines.written, lines.last.iter().skip(skipped).cloned().collect())
    }

    /// Passes on what comes out of these pipes.
    pub(super) fn read(
        &self,
        stdout: Option<impl Read + Send + 'static>,
        stderr: Option<impl Read + Send + 'static>,
    ) -> OutputReader {
        let stdout = stdout.map(|pipe| self.follow(pipe, io::stdout()));
        let stderr = stderr.map(|pipe| self.follow(pipe, io::stderr()));
        OutputReader { closed: stdout.into_iter().chain(stderr).collect() }
    }

    fn follow(
        &self,
        mut pipe: impl Read + Send + 'static,
        mut onto: impl Write + Send + 'static,
    ) -> Receiver<()> {
        let output = self.clone();
        let (close, closed) = channel();
        thread::spawn(move || {
            let (mut buffer, mut line) = ([0; 8192], Vec::new());
            loop {
                match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        // An agent whose output nobody takes must not stop.
                        let _ = onto.write_all(&buffer[..count]).and_then(|()| onto.flush());
                        output.keep(&buffer[..count], &mut line);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            if !line.is_empty() {
                output.keep(b"\n", &mut line);
            }
            let _ = close.send(());
        });
        closed
    }

    /// Adds the lines that these bytes complete; `line` is the part of one that has come so far.
    fn keep(&self, bytes: &[u8], line: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_complete = part.ends_with(b"\n");
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = MAX_LINE_BYTES.saturating_sub(line.len()).min(text.len());
            line.extend_from_slice(&text[..room]);
            if is_complete {
                let text = String::from_utf8_lossy(line);
                let text = text.chars().map(|c| if c.is_control() { ' ' } else { c });
                let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                lines.written += 1;
                lines.last.push_back(text.take(MAX_LINE_CHARS).collect());
                if lines.last.len() > MAX_LINES {
                    lines.last.pop_front();
                }
                line.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that tests can look at.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_passed_on_and_the_last_lines_are_kept() {
        let (output, written) = (AgentOutput::default(), Written::default());
        let mut text: String = (1..=30).map(|n| format!("line {n}\n")).collect();
        let closed = output.follow(io::Cursor::new(text.clone().into_bytes()), written.clone());
        closed.recv().unwrap();
        let (count, lines) = output.since(0);
        assert_eq!((count, lines.len(), lines[0].as_str()), (30, MAX_LINES, "line 11"));
        let more = format!("{}\n\u{7}no end", "x".repeat(100_000));
        output.follow(io::Cursor::new(more.clone().into_bytes()), written.clone()).recv().unwrap();
        text += &more;
        assert_eq!(*written.0.lock().unwrap(), text.into_bytes());
        let (count, lines) = output.since(30);
        assert_eq!((count, lines.len()), (32, 2));
        assert_eq!((lines[0].len(), lines[1].as_str()), (MAX_LINE_CHARS, " no end"));
        assert!(output.since(u64::MAX).1.is_empty());
    }
}
