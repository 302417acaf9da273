//! The README's host, as it is written there.

use regex::Regex;

use crate::archives::architecture;
use crate::host::Host;

const README: &str = include_str!("../../../../README.md");
const SECTION: &str = "## A host that updates itself";

/// A line behind the prompt, and the lines below it.
type Typed = (String, Vec<String>);

/// What stands in blocks of the section: lines without a prompt are for the control plane.
fn section() -> (Vec<String>, Vec<Typed>) {
    let text = README.split_once(SECTION).unwrap().1.split("\n## ").next().unwrap();
    let (mut control, mut typed) = (Vec::new(), Vec::<Typed>::new());
    for block in text.split("```").skip(1).step_by(2) {
        let is_host = block.lines().any(|line| line.starts_with("# "));
        for line in block.lines().filter(|line| !line.is_empty()) {
            match (line.strip_prefix("# "), typed.last_mut()) {
                (Some(command), _) => typed.push((command.into(), Vec::new())),
                (None, Some((_, shown))) if is_host => shown.push(line.into()),
                _ => control.push(line.split("  # ").next().unwrap().trim().into()),
            }
        }
    }
    (control, typed)
}

/// What a person sees: without colours, and without what was drawn over.
fn seen(bytes: &str) -> Vec<String> {
    let colours = Regex::new("\u{1b}\\[[0-9;?]*m").unwrap();
    let text = colours.replace_all(bytes, "");
    let lines = text.lines().map(|line| {
        let drawn = line.trim_end_matches('\r');
        drawn.rsplit(['\r', '\u{1b}']).next().unwrap_or(drawn)
    });
    let lines = lines.map(|line| line.strip_prefix("[2K").unwrap_or(line));
    // How long the agent is silent while it becomes the new version is its own affair.
    let lines = lines.filter(|line| !line.contains("it is not known how the agent is"));
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Whether that is what is shown, where an ellipsis stands for the rest of a number.
fn is_shown(shown: &[String], printed: &[String]) -> bool {
    let number = Regex::new("[0-9a-f]+…").unwrap();
    let line = |(shown, printed): (&String, &String)| {
        let parts: Vec<String> = number.split(shown).map(regex::escape).collect();
        Regex::new(&format!("^{}$", parts.join("[0-9a-f]+"))).unwrap().is_match(printed)
    };
    shown.len() == printed.len() && shown.iter().zip(printed).all(line)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_is_right() {
    // Otherwise the agent's hint may be faster than the reader who wants to see it done by hand.
    let host = Host::fresh().await;
    let (control, typed) = section();
    // The archives of the first two lines are in their place.
    assert!(control[0].starts_with("make dist VERSION=1.2.3 ") && control[1].ends_with("/artifacts/"));
    for line in &control[2..] {
        let words: Vec<_> = line.strip_prefix("refitctl ").unwrap().split(' ').collect();
        host.cluster.ctl(&words).good();
    }
    assert!(control.iter().any(|line| line.contains("nodes add")), "{control:?}");

    let proxy = host.cluster.network.endpoint();
    let token = Regex::new("token: [0-9a-f]{32}").unwrap();
    let named = |text: &str| {
        let text = text.replace("refit.example.com:3080", &proxy).replace("sha256:7655…", &host.cluster.pin);
        let text = text.replace("linux-amd64", &format!("linux-{}", architecture()));
        token.replace(&text, format!("token: {}", host.cluster.token)).into_owned()
    };
    assert!(README.contains("`refitctl autoupdate update --set-agent-version=1.2.4`"));
    for (command, shown) in typed {
        let shown: Vec<String> = shown.iter().map(|line| named(line)).collect();
        if let Some(path) = command.strip_prefix("cat >") {
            std::fs::write(host.machine.path(path), shown.join("\n") + "\n").unwrap();
            continue;
        }
        if command.starts_with("refit-update update") {
            host.connects().await;
            host.cluster.ctl(&["autoupdate", "update", "--set-agent-version=1.2.4"]).good();
        }
        let command = named(&command);
        let on_a_terminal = ["script", "--quiet", "--return", "--command", &command, "/dev/null"];
        let ran = host.run(&[&["env", "--chdir=/root"], &on_a_terminal[..]].concat());
        assert_eq!(ran.code, Some(0), "{command}: {ran:?}");
        let printed = seen(&ran.stdout);
        assert!(
            shown.is_empty() || is_shown(&shown, &printed),
            "{command}: {shown:#?}, and not {printed:#?}"
        );
    }
    assert_eq!((host.active(), host.runs()), ("1.2.4".into(), "1.2.4".into()));
}
