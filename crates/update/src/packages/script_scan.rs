//! Whether the script of a package may delete a path. Decides by the text alone.

use std::path::Path;

/// Whether the script names the path, or its directory without a plain name in it, from which it may build the path. A
/// script that does neither is trusted; one that is wrongly suspected is merely not run.
pub(super) fn may_touch(script: &[u8], path: &Path) -> bool {
    let mut script = String::from_utf8_lossy(script).into_owned();
    while script.contains("//") {
        script = script.replace("//", "/");
    }
    let text = path.to_string_lossy();
    let parent = path.parent().map(Path::to_string_lossy).filter(|parent| parent.len() > 1);
    script.contains(&*text) || parent.is_some_and(|parent| names_open_directory(&script, &parent))
}

fn names_open_directory(script: &str, directory: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
    script.match_indices(directory).any(|(at, _)| {
        let before = script[..at].chars().next_back();
        let after = &script[at + directory.len()..];
        let names_another = match after.strip_prefix('/') {
            Some(below) => {
                let name = below.split(|c: char| c == '/' || c.is_whitespace()).next().unwrap_or_default();
                let name = name.trim_end_matches([';', '&', '|', ')', '"', '\'']);
                !name.is_empty() && name.chars().all(is_plain)
            }
            None => after.starts_with(is_plain),
        };
        !names_another && !before.is_some_and(is_plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_may_delete_the_data_are_found() {
        let data = Path::new("/var/lib/refit");
        for script in [
            "rm -rf /var/lib/refit",
            "rm -rf \"/var/lib/refit\"/*",
            "D=/var/lib; rm -rf $D/refit",
            "rm -rf /var/lib/$NAME",
            "rm -rf /var/lib/${NAME}",
            "rm -rf '/var/lib'/refit",
            "rm -rf /var/lib/re[f]it",
            "rm -rf /var/lib/re\"fit\"",
            "rm -rf /var/lib//refit",
            "rm -rf /var/lib/*",
            "cd /var/lib\nrm -rf refit",
            "cd /var/lib && rm -rf refit",
            "cd /var/lib",
        ] {
            assert!(may_touch(script.as_bytes(), data), "{script}");
        }
        for script in [
            "",
            "systemctl daemon-reload",
            "rm -f /var/lib/dpkg/alternatives/x /var/lib/systemd/deb-systemd-helper-enabled/x",
            "rm -rf /srv/var/lib",
            "rm -rf /var/library",
            "rm -rf /var/libexec/$NAME",
            "[ -d \"/var/lib/systemd\" ]; (cd /var/lib/dpkg)",
        ] {
            assert!(!may_touch(script.as_bytes(), data), "{script}");
        }
        assert!(may_touch(b"\xff\xfe rm -f /etc/refit.yaml", Path::new("/etc/refit.yaml")));
        assert!(!may_touch(b"rm -f /etc/default/refit", Path::new("/etc/refit.yaml")));
        assert!(!may_touch(b"rm -f /tmp/x", Path::new("/refit.yaml")), "the root is in every path");
    }
}
