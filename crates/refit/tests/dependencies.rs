//! Rules for dependencies: our crates form layers, and external crates have an allowed licence, one cryptography
//! provider, and no needless second version.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Which of our crates each of our crates may use. Nothing below knows anything above.
const CRATES: [(&str, &[&str]); 16] = [
    ("refit-types", &[]),
    ("refit-backend", &["refit-types"]),
    ("refit-proto", &[]),
    ("refit-rollout", &["refit-types"]),
    ("refit-authority", &["refit-backend", "refit-identity", "refit-types"]),
    ("refit-identity", &["refit-types"]),
    ("refit-migrations", &["refit-backend", "refit-resources"]),
    ("refit-resources", &["refit-backend", "refit-types"]),
    ("refit-convert", &["refit-proto", "refit-rollout", "refit-types"]),
    (
        "refit-server",
        &[
            "refit-authority",
            "refit-backend",
            "refit-convert",
            "refit-identity",
            "refit-migrations",
            "refit-proto",
            "refit-resources",
            "refit-rollout",
            "refit-types",
        ],
    ),
    ("refit-agent", &["refit-identity", "refit-proto", "refit-types"]),
    ("refit-update", &["refit-identity", "refit-types"]),
    ("refit-loadgen", &["refit-identity", "refit-proto", "refit-types"]),
    ("refit-released", &["refit-authority", "refit-backend", "refit-identity", "refit-proto"]),
    ("refit-testbed", &["refit-backend", "refit-types"]),
    (
        "refit",
        &[
            "refit-agent",
            "refit-convert",
            "refit-identity",
            "refit-proto",
            "refit-rollout",
            "refit-server",
            "refit-types",
            "refit-update",
        ],
    ),
];

const LICENCES: [&str; 11] = [
    "Apache-2.0",
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "Unicode-3.0",
    "Unlicense",
    "CDLA-Permissive-2.0",
];

/// What runs on every host, and what of the control plane it must not reach by any path: a host has no
/// store to migrate and no authority to sign with.
const ON_HOSTS: [&str; 2] = ["refit-agent", "refit-update"];
const CONTROL_PLANE: [&str; 4] = ["refit-authority", "refit-backend", "refit-migrations", "refit-server"];

/// Our crates that only tests and measurements may use.
const NEVER_SHIPPED: [&str; 3] = ["refit-loadgen", "refit-released", "refit-testbed"];

/// Another TLS or cryptography in the same process is a second thing to keep patched, and rustls
/// panics when it finds two providers.
const BANNED: [&str; 5] = ["ring", "openssl", "openssl-sys", "native-tls", "serde_yaml"];

/// Two versions of these are in use because our dependencies disagree: tonic and rcgen, and aws-lc-rs
/// and rustls-webpki.
const KNOWN_DUPLICATES: [&str; 2] = ["base64", "untrusted"];

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output =
        Command::new(cargo).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every crate that `package` links, itself included, by whatever path.
fn linked(package: &str) -> BTreeSet<String> {
    let tree = cargo(&["tree", "--locked", "-p", package, "-e", "normal", "--prefix", "none", "-f", "{p}"]);
    tree.lines().filter_map(|line| line.split(' ').next()).map(Into::into).collect()
}

/// Name, version and licence of all crates that end up in the binary.
fn shipped() -> BTreeSet<(String, String, String)> {
    let tree = cargo(&[
        "tree",
        "--locked",
        "-p",
        "refit",
        "-e",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "-f",
        "{p}|{l}",
    ]);
    let crates = tree.lines().map(|line| {
        let (package, licence) = line.split_once('|').unwrap();
        let mut words = package.split(' ');
        let mut word = || words.next().unwrap().to_owned();
        (word(), word(), licence.trim_end_matches(" (*)").to_owned())
    });
    let crates: BTreeSet<_> = crates.collect();
    assert!(crates.len() > 100, "{crates:?}");
    crates
}

#[test]
fn crates_depend_in_one_direction() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--locked", "--no-deps"]))
            .unwrap();
    let mut ours = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        ours.insert(name);
        let (_, allowed) =
            CRATES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            if dependency["kind"].is_null() && used.starts_with("refit") {
                assert!(allowed.contains(&used), "{name} must not know {used}");
            }
        }
    }
    assert_eq!(ours, CRATES.iter().map(|(name, _)| *name).collect());
}

#[test]
fn hosts_link_nothing_of_the_control_plane() {
    for package in ON_HOSTS {
        let linked = linked(package);
        assert!(linked.contains("refit-identity"), "{package}: {linked:?}");
        for forbidden in CONTROL_PLANE {
            assert!(!linked.contains(forbidden), "{package} links {forbidden}");
        }
    }
    let server = linked("refit-server");
    assert!(CONTROL_PLANE.iter().all(|name| server.contains(*name)), "the test itself works: {server:?}");
}

#[test]
fn what_is_shipped_may_be_shipped() {
    for (name, _, licence) in shipped() {
        assert!(may_be_shipped(&licence), "{name} is under {licence:?}");
        assert!(!BANNED.contains(&name.as_str()), "{name} is banned");
        assert!(!NEVER_SHIPPED.contains(&name.as_str()), "{name} is for tests");
    }
}

#[test]
fn nothing_is_shipped_in_two_versions() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version, _) in shipped() {
        versions.entry(name).or_default().push(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert_eq!(versions.keys().collect::<Vec<_>>(), KNOWN_DUPLICATES, "{versions:?}");
}

/// An SPDX expression of which some choice is allowed whole.
fn may_be_shipped(expression: &str) -> bool {
    let choices = expression.replace(['(', ')'], "").replace('/', " OR ");
    choices.split(" OR ").any(|choice| {
        choice.split(" AND ").all(|licence| {
            let base = licence.split(" WITH ").next().unwrap_or(licence);
            LICENCES.contains(&base.trim())
        })
    })
}
