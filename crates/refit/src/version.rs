//! `refit version`: the updater runs it to check that a new binary starts and is the version that it expects.

use refit_types::{Edition, Version};
use serde::Serialize;

use crate::exit::Failure;
use crate::output::{self, Format};
use crate::stamp;

/// The output of `version` in JSON.
#[derive(Debug, Serialize)]
struct Told<'a> {
    name: &'a str,
    version: Version,
    edition: Edition,
}

/// Prints the version.
pub(crate) fn show(name: &str, format: Format) -> Result<(), Failure> {
    let told = Told { name, version: stamp::version()?, edition: crate::EDITION };
    output::show(format, &told, || format!("{name} v{} ({})", told.version, told.edition))
}
