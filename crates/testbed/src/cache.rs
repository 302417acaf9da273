//! Where tests keep what takes long to make or to fetch, outside of the checkout: the root of booted machines, and
//! axe-core, which `make test-deps` puts there.

use std::path::{Path, PathBuf};

/// The Makefile computes the same path as `TEST_CACHE`.
pub fn cache_directory() -> PathBuf {
    let own = std::env::var_os("XDG_CACHE_HOME").filter(|path| Path::new(path).is_absolute());
    let cache =
        own.map(PathBuf::from).or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.expect("XDG_CACHE_HOME or HOME must be set, to keep test files in").join("refit-tests")
}
