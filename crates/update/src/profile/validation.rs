//! Reads a profile from a file and validates it.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use super::{Profile, ProfileError, Readiness};

/// More than a profile needs.
const LONGEST_FILE: u64 = 64 * 1024;
const MOST_BINARIES: usize = 100;
const LONGEST_NAME: usize = 100;
const PLACEHOLDERS: [&str; 5] = ["base_url", "edition", "version", "os", "arch"];

impl Profile {
    /// Reads a YAML file and validates it. An error lists everything that is wrong: the updater writes, as root, where a
    /// profile says.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let failed = |reason: String| ProfileError { path: path.into(), reason };
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut text = String::new();
        file.take(LONGEST_FILE + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > LONGEST_FILE {
            return Err(failed(format!("it is longer than {} KiB", LONGEST_FILE / 1024)));
        }
        let profile = Self::parse(&text).map_err(failed)?;
        let errors = profile.validation_errors();
        if errors.is_empty() { Ok(profile) } else { Err(failed(errors.join("; "))) }
    }

    /// Parses the file; an error names its field.
    fn parse(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! { with_snippet: false };
        let mut field = None;
        let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            serde_path_to_error::deserialize(deserializer).map_err(|error| {
                field = error.path().iter().next().map(|_| error.path().to_string());
                error.into_inner()
            })
        });
        read.map_err(|error| match field {
            Some(field) => format!("{field}: {error}"),
            None => error.to_string(),
        })
    }

    /// All validation errors, each with its field.
    fn validation_errors(&self) -> Vec<String> {
        let mut errors = ValidationErrors::default();
        errors.name("name", &self.name);
        errors.binaries(&self.binaries);
        if let Some(updater) = self.updater.as_ref().filter(|updater| !self.binaries.contains(updater)) {
            errors.add("updater", format!("{updater:?} is not one of the binaries"));
        }
        if self.version_arguments.is_empty() {
            errors.add(
                "version_arguments",
                "without arguments an agent would start; expected some, like [version]",
            );
        }
        errors.name("unit", &self.unit);
        if !self.unit.ends_with(".service") {
            errors.add("unit", format!("{:?} does not end in .service", self.unit));
        }
        for unit in &self.updater_units {
            errors.name("updater_units.name", &unit.name);
            if let Some(target) = &unit.wanted_by {
                errors.name("updater_units.wanted_by", target);
            }
        }
        for unit in self.suffix_drop_ins.keys().filter(|unit| !self.units().any(|known| known == *unit)) {
            errors.add("suffix_drop_ins", format!("{unit:?} is none of the units"));
        }
        errors.artifact(&self.artifact);
        if let Some(root) = &self.archive_root {
            errors.name("archive_root", root);
        }
        errors.below("archive_unit", Path::new(&self.archive_unit));
        for (field, path) in [
            ("data_dir", &self.data_dir),
            ("config", &self.config),
            ("bin_dir", &self.bin_dir),
            ("unit_dir", &self.unit_dir),
        ] {
            errors.absolute(field, path);
        }
        errors.below("database", &self.database);
        match &self.readiness {
            Readiness::Socket(path) => errors.below("readiness.socket", path),
            Readiness::Http { url, pid_file } => {
                errors.url(url);
                if pid_file.is_absolute() {
                    errors.absolute("readiness.http.pid_file", pid_file);
                } else {
                    errors.below("readiness.http.pid_file", pid_file);
                }
            }
        }
        if let Some(package) = &self.package {
            errors.name("package", package);
        }
        errors.found
    }
}

#[derive(Debug, Default)]
struct ValidationErrors {
    found: Vec<String>,
}

impl ValidationErrors {
    fn add(&mut self, field: &str, reason: impl Into<String>) {
        self.found.push(format!("{field}: {}", reason.into()));
    }

    /// A name that becomes a file name or an argument of a command.
    fn name(&mut self, field: &str, name: &str) {
        let good = |c: char| c.is_ascii_alphanumeric() || "._+@-".contains(c);
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts_well || !name.chars().all(good) || name.len() > LONGEST_NAME {
            let shown: String = name.chars().take(LONGEST_NAME).collect();
            self.add(
                field,
                format!(
                    "{shown:?} is not a name; expected letters, digits, '.', '_', '+', '@' and '-', without a slash"
                ),
            );
        }
    }

    fn binaries(&mut self, binaries: &[String]) {
        if binaries.is_empty() || binaries.len() > MOST_BINARIES {
            self.add("binaries", format!("{} are named; expected 1 to {MOST_BINARIES}", binaries.len()));
        }
        let mut seen = HashSet::new();
        for (n, binary) in binaries.iter().take(MOST_BINARIES).enumerate() {
            let field = format!("binaries[{n}]");
            self.name(&field, binary);
            if !seen.insert(binary) {
                self.add(&field, format!("{binary:?} is named twice"));
            }
        }
    }

    fn artifact(&mut self, template: &str) {
        let field = "artifact";
        if !template.starts_with("{base_url}/") && !template.starts_with("https://") {
            self.add(field, format!("{template:?} begins neither with {{base_url}}/ nor with https://"));
        }
        if !template.contains("{version}") {
            self.add(
                field,
                format!("{template:?} names no {{version}}: every version would be the same archive"),
            );
        }
        if !template.ends_with(".tar.gz") && !template.ends_with(".tgz") {
            self.add(field, format!("{template:?} ends neither in .tar.gz nor in .tgz"));
        }
        if template.chars().any(|c| c.is_whitespace() || c.is_control() || "?#".contains(c)) {
            self.add(field, format!("{template:?} has a space, a query or a fragment in it"));
        }
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let inside = rest[at..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
            match inside {
                Some((known, after)) if PLACEHOLDERS.contains(&known) => rest = after,
                _ => {
                    let known = PLACEHOLDERS.map(|name| format!("{{{name}}}")).join(", ");
                    return self
                        .add(field, format!("{template:?} has something else in braces than {known}"));
                }
            }
        }
    }

    fn absolute(&mut self, field: &str, path: &Path) {
        let text = path.display();
        if !path.is_absolute() {
            self.add(field, format!("{text} is not an absolute path"));
        } else if path.parent().is_none() || !is_plain(path) {
            self.add(
                field,
                format!("{text} is not a path to one place; expected one without '..', not the root"),
            );
        }
    }

    fn below(&mut self, field: &str, path: &Path) {
        let starts_well = matches!(path.components().next(), Some(Component::Normal(_)));
        if !starts_well || !is_plain(path) {
            let text = path.display();
            self.add(field, format!("{text:?} is not a relative path without '.' and '..'"));
        }
    }

    fn url(&mut self, url: &str) {
        let host = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
        let local = |host: &str| {
            ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| {
                let port =
                    |rest: &str| rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
                host.strip_prefix(name).is_some_and(|rest| rest.is_empty() || port(rest))
            })
        };
        let clean = !url.chars().any(|c| c.is_whitespace() || c.is_control());
        if !clean || !host.is_some_and(local) {
            self.add(
                "readiness.http.url",
                format!("{url:?} is not an address on this host, like http://127.0.0.1:3000/readyz"),
            );
        }
    }
}

/// No way upwards, and nothing that would break a line or a command.
fn is_plain(path: &Path) -> bool {
    let named = |part| matches!(part, Component::RootDir | Component::Normal(_));
    path.components().all(named)
        && path.to_str().is_some_and(|text| {
            !text.chars().any(char::is_control) && !text.split('/').any(|part| part == ".")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut Profile);

    #[test]
    fn our_own_profile_is_good() {
        assert_eq!(Profile::refit().validation_errors(), [""; 0]);
    }

    #[test]
    fn each_field_is_checked() {
        let with = |change: Change| {
            let mut profile = Profile::refit();
            change(&mut profile);
            profile.validation_errors()
        };
        let http = |url: &str, pid_file: &str| Readiness::Http { url: url.into(), pid_file: pid_file.into() };
        let cases: &[(&str, Change)] = &[
            ("name: ", |p| p.name = "a/b".into()),
            ("name: ", |p| p.name = String::new()),
            ("name: ", |p| p.name = "x".repeat(101)),
            ("binaries: 0 are named", |p| (p.binaries, p.updater) = (vec![], None)),
            ("binaries[1]: \"../evil\"", |p| p.binaries[1] = "../evil".into()),
            ("binaries[1]: \"..\"", |p| p.binaries[1] = "..".into()),
            ("binaries[1]: \"-rf\"", |p| p.binaries[1] = "-rf".into()),
            ("binaries[1]: \"refit\" is named twice", |p| p.binaries[1] = "refit".into()),
            ("updater: \"other\"", |p| p.updater = Some("other".into())),
            ("version_arguments: ", |p| p.version_arguments.clear()),
            ("unit: ", |p| (p.unit, p.suffix_drop_ins) = ("refit.timer".into(), Default::default())),
            ("unit: ", |p| (p.unit, p.suffix_drop_ins) = ("a/refit.service".into(), Default::default())),
            ("updater_units.name: ", |p| p.updater_units[1].name = "../x.timer".into()),
            ("updater_units.wanted_by: ", |p| p.updater_units[1].wanted_by = Some("a/b".into())),
            ("suffix_drop_ins: ", |p| drop(p.suffix_drop_ins.insert("other.service".into(), String::new()))),
            ("artifact: ", |p| p.artifact = "http://x/{version}.tar.gz".into()),
            ("artifact: ", |p| p.artifact = "{base_url}/refit.tar.gz".into()),
            ("artifact: ", |p| p.artifact = "{base_url}/{version}.zip".into()),
            ("artifact: ", |p| p.artifact = "{base_url}/{version}-{flavour}.tar.gz".into()),
            ("artifact: ", |p| p.artifact = "{base_url}/{version}-}.tar.gz".into()),
            ("artifact: ", |p| p.artifact = "{base_url}/{version}?token=x.tar.gz".into()),
            ("archive_root: ", |p| p.archive_root = Some("a/b".into())),
            ("archive_unit: ", |p| p.archive_unit = "/etc/refit.service".into()),
            ("archive_unit: ", |p| p.archive_unit = "a/../../refit.service".into()),
            ("archive_unit: ", |p| p.archive_unit = String::new()),
            ("data_dir: ", |p| p.data_dir = "var/lib/refit".into()),
            ("data_dir: ", |p| p.data_dir = "/".into()),
            ("data_dir: ", |p| p.data_dir = "/var/../etc".into()),
            ("config: ", |p| p.config = "refit.yaml".into()),
            ("bin_dir: ", |p| p.bin_dir = "bin".into()),
            ("unit_dir: ", |p| p.unit_dir = "/a\nb".into()),
            ("database: ", |p| p.database = "/var/lib/refit/proc/sqlite.db".into()),
            ("database: ", |p| p.database = "../sqlite.db".into()),
            ("readiness.socket: ", |p| p.readiness = Readiness::Socket("/run/refit.sock".into())),
            ("package: ", |p| p.package = Some("--purge".into())),
        ];
        for (error, change) in cases {
            let found = with(*change);
            assert!(found.len() == 1 && found[0].starts_with(error), "{error}: {found:?}");
        }
        for (url, good) in [
            ("http://127.0.0.1:3000/readyz", true),
            ("http://localhost/", true),
            ("http://[::1]:3000", true),
            ("http://127.0.0.1.example.com/", false),
            ("http://127.0.0.1:99999/", false),
            ("http://localhost123/", false),
            ("http://example.com/readyz", false),
            ("https://127.0.0.1/", false),
            ("127.0.0.1:3000", false),
        ] {
            let profile = Profile { readiness: http(url, "agent.pid"), ..Profile::refit() };
            assert_eq!(profile.validation_errors().is_empty(), good, "{url}");
        }
        for (pid_file, good) in
            [("run/agent.pid", true), ("/run/agent.pid", true), ("../a", false), ("/", false)]
        {
            let profile = Profile { readiness: http("http://127.0.0.1:1/", pid_file), ..Profile::refit() };
            assert_eq!(profile.validation_errors().is_empty(), good, "{pid_file}");
        }
    }
}
