//! How many rounds a randomized test runs.

/// How many rounds a sweep takes: a few in every test run, all of them with `REFIT_SWEEP=full`.
pub fn sweep(short: usize, full: usize) -> usize {
    match std::env::var("REFIT_SWEEP").as_deref() {
        Ok("full") => full,
        _ => short,
    }
}
