//! The default data directory of server, agent and `refitctl`, which depends on the user who runs them.

use std::path::PathBuf;

/// The default: system-wide, or below the home directory of a user who cannot write there.
pub(crate) fn default_data_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/var/lib/refit".into();
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    data.map_or_else(|| "/var/lib/refit".into(), |data| data.join("refit"))
}
