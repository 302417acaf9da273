//! The two log formats: for daemons, and for commands. Both write to standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::exit::Failure;

fn filter(usual: &str) -> Result<EnvFilter, Failure> {
    match std::env::var("REFIT_LOG") {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| Failure::usage(format!("REFIT_LOG: {text:?} is not a log filter: {error}"))),
        Err(_) => Ok(EnvFilter::new(usual)),
    }
}

/// The log of what runs for long: time, level and place.
pub(crate) fn to_stderr() -> Result<(), Failure> {
    let ansi = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter("info")?);
    log.with_writer(std::io::stderr).with_ansi(ansi).init();
    Ok(())
}

/// The log of a command that does several things: a plain line for each, which journald gives its time.
pub(crate) fn steps_to_stderr() -> Result<(), Failure> {
    let ansi = std::io::stderr().is_terminal();
    let filter = filter("warn,refit=info,refit_update=info")?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi);
    let log = log.with_target(false);
    if ansi || std::env::var_os("JOURNAL_STREAM").is_some() {
        log.without_time().init();
    } else {
        log.init();
    }
    Ok(())
}
