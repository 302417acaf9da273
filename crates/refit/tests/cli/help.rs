//! Help texts with examples for every command, and shell completions.

use crate::host::{Host, Ran};

/// The names below `Commands:` in a help text.
fn commands(help: &str) -> Vec<String> {
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = below.take_while(|line| !line.is_empty());
    // Deeper lines go on with a description.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(Into::into).collect()
}

/// Asks a command and everything below it for help, and gives how many there were.
fn walk(run: &dyn Fn(&[&str]) -> Ran, path: &[&str]) -> usize {
    let help = run(&[path, &["--help"]].concat()).good();
    assert!(help.contains("Example"), "{path:?} shows no example:\n{help}");
    assert!(help.contains("Usage:"), "{path:?}:\n{help}");
    assert_eq!(run(&[path, &["-h"]].concat()).code, Some(0), "{path:?}");
    let unknown = run(&[path, &["--no-such-flag"]].concat());
    assert_eq!(unknown.code, Some(2), "{path:?}: {unknown:?}");
    assert!(unknown.stderr.contains("--no-such-flag"), "{unknown:?}");
    let below: usize = commands(&help).iter().map(|name| walk(run, &[path, &[name]].concat())).sum();
    below + 1
}

#[test]
fn every_command_helps_with_an_example() {
    let host = Host::new();
    let refit = walk(&|arguments| host.refit(arguments), &[]);
    let refitctl = walk(&|arguments| host.refitctl(arguments), &[]);
    assert!(refitctl >= 10, "the walk found only {refitctl} commands");
    let link = host.path("refit-update");
    std::os::unix::fs::symlink(crate::host::REFIT, &link).unwrap();
    let update = walk(&|arguments| Ran::of(&mut host.command(&link, arguments)), &[]);
    assert!(update >= 10, "the walk found only {update} commands");
    assert_eq!(
        refit,
        refitctl + update + 8,
        "refit has server, demo, version, completions, itself and three for the agent besides"
    );
}

#[test]
fn a_command_by_itself_shows_how_to_go_on() {
    let host = Host::new();
    for arguments in [&[][..], &["ctl"], &["ctl", "auth"], &["ctl", "migrations"]] {
        let ran = host.refit(arguments);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("Usage:"), "{ran:?}");
    }
    let unknown = host.refit(&["serve"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("server"), "a near name is proposed: {unknown:?}");
}

#[test]
fn shells_get_their_completions() {
    let host = Host::new();
    for shell in ["bash", "zsh", "fish"] {
        let refit = host.refit(&["completions", shell]).good();
        assert!(refit.contains("server") && refit.contains("diag-listen"), "{shell}: {refit}");
        let refitctl = host.refitctl(&["completions", shell]).good();
        assert!(refitctl.contains("refitctl") && refitctl.contains("migrations"), "{shell}: {refitctl}");
        assert_eq!(host.refit(&["ctl", "completions", shell]).good(), refitctl);
    }
    assert_eq!(host.refit(&["completions", "cmd.exe"]).code, Some(2));
}
