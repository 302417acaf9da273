//! The transcripts of the documentation, run as they are written: what a reader would type goes to the real
//! binary and a real server, and what it prints must be what the page shows.
//!
//! `REFIT_TRANSCRIPTS=update` writes what is printed into the page instead of comparing it.

#![allow(clippy::unwrap_used)]

#[path = "transcripts/page.rs"]
mod page;
#[path = "transcripts/shape.rs"]
mod shape;
#[path = "transcripts/stage.rs"]
mod stage;

use std::path::PathBuf;

use jiff::Timestamp;
use page::{Page, Step};
use stage::Stage;

/// Plays a page from its top: the differences, and the page with what was printed; or why it did not come to
/// its end.
async fn play(text: &str) -> Result<(Vec<String>, String), String> {
    let mut page = Page::read(text);
    let mut stage = Stage::set().await;
    let (mut differences, mut is_next) = (Vec::new(), true);
    for step in page.steps() {
        match step {
            Step::Direction { line, text } => {
                is_next = stage.follow(&text).await.map_err(|problem| told(line, problem, &differences))?;
            }
            Step::Command { .. } if !is_next => is_next = true,
            Step::Command { line, typed, shown } => {
                if let Some(file) = typed.strip_prefix("cat ") {
                    stage.write(file, &shown);
                    continue;
                }
                let printed = stage.run(&typed);
                differences.extend(shape::difference(&shown, &printed).map(|difference| {
                    format!("line {line}: `{typed}` printed something else\n{difference}")
                }));
                page.replace(line, &shown, &printed);
            }
        }
    }
    Ok((differences, page.text()))
}

fn told(line: usize, problem: String, before: &[String]) -> String {
    let before: String = before.iter().map(|difference| format!("{difference}\n\n")).collect();
    format!("{before}line {line}: {problem}")
}

#[tokio::test(flavor = "multi_thread")]
async fn rollouts() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/rollouts.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let update = std::env::var("REFIT_TRANSCRIPTS").is_ok_and(|wish| wish == "update");
    // Windows open and close on the hour: a page that was played over one is played again.
    let hour = || Timestamp::now().as_second() / 3600;
    loop {
        let began = hour();
        let wrong = match play(&text).await {
            Ok((_, printed)) if update => return std::fs::write(&path, printed).unwrap(),
            Ok((differences, _)) if differences.is_empty() => return,
            Ok((differences, _)) => differences.join("\n\n"),
            Err(problem) => problem,
        };
        if hour() == began {
            let how = "if what is printed is right, REFIT_TRANSCRIPTS=update writes it into the page";
            panic!("docs/rollouts.md is wrong (- is shown, + is printed):\n\n{wrong}\n\n{how}");
        }
    }
}
