//! What systemd's journal says of a unit, read by `journalctl`: its last lines, and whether somebody stopped it. What cannot
//! be read was not said: a journal is not needed to undo a version.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use crate::agent_run::MAX_LINES;
use crate::probe::output_of;

/// How long `journalctl` may take: it waits for a disk.
const WITHIN: Duration = Duration::from_secs(10);
/// How often the journal is read for a stop, and how long between.
const STOP_LOOKS: u32 = 5;
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Shown for a line that `journalctl` leaves out for its length.
const TOO_LONG: &str = "(a line of more than 4096 bytes)";

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "__MONOTONIC_TIMESTAMP")]
    monotonic: String,
    #[serde(rename = "MESSAGE", default)]
    message: Message,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Message {
    Text(String),
    Bytes(Vec<u8>),
    #[default]
    LeftOut,
}

/// `SD_MESSAGE_UNIT_STOPPED` of a job that was to stop a unit: systemd has carried it out.
const STOPPED: [&str; 2] = ["MESSAGE_ID=9d1aaa27d60140bd96365438aad20286", "JOB_TYPE=stop"];

/// The last lines that the processes of a unit wrote in this boot after a moment of the monotonic clock, in microseconds;
/// oldest first.
pub(super) fn last_lines(unit: &str, after: u64) -> Vec<String> {
    newest(&[&format!("_SYSTEMD_UNIT={unit}")], MAX_LINES, after)
}

/// Whether somebody asked systemd to stop the unit after that moment. A unit whose process ends by itself is not stopped.
pub(super) fn was_stopped(unit: &str, after: u64) -> bool {
    let unit = format!("UNIT={unit}");
    let is_told = || !newest(&[&unit, STOPPED[0], STOPPED[1]], 1, after).is_empty();
    // The journal may lag behind on a busy host.
    (0..STOP_LOOKS).any(|look| {
        if look > 0 {
            thread::sleep(LOOK_EVERY);
        }
        is_told()
    })
}

/// The messages of the newest entries with these fields, oldest first.
fn newest(fields: &[&str], count: usize, after: u64) -> Vec<String> {
    let run = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        output_of(Path::new("journalctl"), &arguments, WITHIN)
    };
    // What was written last may still be on its way to the journal.
    if let Err(error) = run(&["--sync"]) {
        tracing::debug!("The journal was not synced: {error}");
    }
    let (count, shown) = (count.to_string(), "--output-fields=MESSAGE");
    let newest_first = ["--quiet", "--no-pager", "--boot", "--reverse", "--output=json", shown, "-n", &count];
    match run(&[&newest_first, fields].concat()) {
        Ok(output) => lines_of(&String::from_utf8_lossy(&output), after),
        Err(error) => {
            tracing::warn!("The journal cannot be read: {error}");
            Vec::new()
        }
    }
}

/// The messages of entries after that moment, oldest first. Output that was cut ends with an entry that is not whole.
fn lines_of(newest_first: &str, after: u64) -> Vec<String> {
    let entries = newest_first.lines().map_while(|line| serde_json::from_str::<Entry>(line).ok());
    let is_new = |entry: &Entry| entry.monotonic.parse::<u64>().is_ok_and(|at| at >= after);
    let text = |entry: Entry| match entry.message {
        Message::Text(text) => text,
        Message::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Message::LeftOut => TOO_LONG.into(),
    };
    let mut lines: Vec<String> = entries.filter(is_new).map(text).collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_whatever_form_the_journal_has_them() {
        let output = r#"{"__CURSOR":"s=1","__MONOTONIC_TIMESTAMP":"300","MESSAGE":[111,104,255]}
{"__MONOTONIC_TIMESTAMP":"250","MESSAGE":null}
{"__MONOTONIC_TIMESTAMP":"240"}
{"__MONOTONIC_TIMESTAMP":"200","MESSAGE":"new"}
{"__MONOTONIC_TIMESTAMP":"199","MESSAGE":"old"}
{"__MONOTONIC_TIMESTAMP":"198","MES"#;
        assert_eq!(lines_of(output, 200), ["new", TOO_LONG, TOO_LONG, "oh\u{fffd}"]);
        assert_eq!(lines_of(output, 301), Vec::<String>::new());
    }
}
