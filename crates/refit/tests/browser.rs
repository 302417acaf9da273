//! The dashboard in a real browser, on a real server with hosts that are being updated.
//!
//! Pictures of its pages are written to `target/screenshots`, and with `REFIT_SCREENSHOTS=update` to
//! `docs/screenshots`.

#![allow(clippy::unwrap_used, dead_code)]

mod demonstration;
mod host;

#[path = "browser/acting.rs"]
mod acting;
#[path = "browser/chromium.rs"]
mod chromium;
#[path = "browser/demonstrated.rs"]
mod demonstrated;
#[path = "browser/fleet.rs"]
mod fleet;
#[path = "browser/looks.rs"]
mod looks;
#[path = "browser/moving.rs"]
mod moving;
#[path = "browser/png.rs"]
mod png;
#[path = "browser/signing_in.rs"]
mod signing_in;
#[path = "browser/stage.rs"]
mod stage;

use tokio::sync::{Mutex, MutexGuard};

/// Browsers are heavy: one at a time.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}
