//! How this binary was called, so that messages can suggest commands that work when pasted.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How this program was called, for suggested commands that can be pasted.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    program: PathBuf,
}

impl Invocation {
    pub(crate) fn of_this_process() -> Self {
        Self { program: std::env::args_os().next().unwrap_or_else(|| "refit".into()).into() }
    }

    /// Whether it was called by that name, through a link.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.program.file_name() == Some(OsStr::new(name))
    }

    /// The command that runs `refitctl` from the caller's directory.
    pub(crate) fn refitctl(&self) -> String {
        let program = quoted(&self.program);
        if self.is("refitctl") { program } else { format!("{program} ctl") }
    }
}

/// A path as a shell reads it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_pasted_as_they_are() {
        let called = |program: &str| Invocation { program: program.into() }.refitctl();
        assert_eq!(called("target/release/refit"), "target/release/refit ctl");
        assert_eq!(called("/usr/local/bin/refitctl"), "/usr/local/bin/refitctl");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
