//! The dashboard in a real browser, on a real server with hosts that are being updated.
//!
//! Pictures of its pages are written to `target/screenshots`, and with `REFIT_SCREENSHOTS=update` to
//! `docs/screenshots`.

#![allow(clippy::unwrap_used, dead_code)]

mod demonstration;
mod host;

#[path = "browser/actions.rs"]
mod actions;
#[path = "browser/chromium.rs"]
mod chromium;
#[path = "browser/demo.rs"]
mod demo;
#[path = "browser/fleet.rs"]
mod fleet;
#[path = "browser/live_updates.rs"]
mod live_updates;
#[path = "browser/login.rs"]
mod login;
#[path = "browser/png.rs"]
mod png;
#[path = "browser/screenshots.rs"]
mod screenshots;
#[path = "browser/stage.rs"]
mod stage;

use tokio::sync::{Mutex, MutexGuard};

/// Browsers are heavy: one at a time.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}
