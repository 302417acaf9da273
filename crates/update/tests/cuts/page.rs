//! A page in `docs/` that a test writes.

use std::path::Path;

/// The page is what the test found; `REFIT_TRANSCRIPTS=update` makes it so.
#[track_caller]
pub fn is(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("REFIT_TRANSCRIPTS").is_some_and(|what| what == "update") {
        std::fs::write(&path, text).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == text, "{} is no longer true: REFIT_TRANSCRIPTS=update writes it anew", path.display());
}
