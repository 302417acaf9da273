//! Two agents on one host, and what is left of one that is removed.

use serde_json::Value;

use refit_testbed::{Ran, eventually};

use crate::cluster::PATIENCE;
use crate::host::Host;

const KEPT: [&str; 2] = ["/etc/refit.yaml", "/var/lib/refit/host_uuid"];

/// One of the two.
struct Agent<'a> {
    host: &'a Host,
    suffix: &'static str,
}

impl Agent<'_> {
    fn update(&self, arguments: &[&str]) -> Ran {
        match self.suffix {
            "" => self.host.update(arguments),
            _ => self
                .host
                .run(&[&["/opt/refit-b/bin/refit-update", "--install-suffix", "b"], arguments].concat()),
        }
    }

    fn unit(&self) -> String {
        format!("refit{}.service", self.suffix)
    }

    fn shows(&self, property: &str) -> String {
        self.host.machine.show(&self.unit(), property)
    }

    fn readiness(&self) -> Option<Value> {
        let bin = if self.suffix.is_empty() { "/usr/local/bin" } else { "/opt/refit-b/bin" };
        let data = format!("/var/lib/refit{}", self.suffix);
        let asked = self.host.run(&[
            &format!("{bin}/refit"),
            "agent",
            "status",
            "--data-dir",
            &data,
            "--format",
            "json",
        ]);
        serde_json::from_str(&asked.stdout).ok()
    }

    async fn connects(&self) -> Value {
        let mut last = None;
        eventually("the agent connects", PATIENCE, || {
            last = self.readiness();
            let connected = last.as_ref().is_some_and(|readiness| readiness["connected"] == true);
            async move { connected }
        })
        .await;
        last.unwrap()
    }

    /// Its version and its process.
    #[track_caller]
    fn runs(&self) -> (String, String) {
        let readiness = self.readiness().unwrap();
        assert_eq!(readiness["pid"].to_string(), self.shows("MainPID"), "{}", self.unit());
        (readiness["version"].as_str().unwrap().into(), self.shows("MainPID"))
    }

    /// Every file and link that the updater has made for it, by what would change if it were made again.
    fn files(&self) -> String {
        let (data, suffix) = (format!("/var/lib/refit{}", self.suffix), self.suffix);
        let bin = if suffix.is_empty() { "/usr/local/bin" } else { "/opt/refit-b" };
        let units = format!("/usr/local/lib/systemd/system/refit{suffix}.service");
        let updater = format!("/usr/local/lib/systemd/system/refit-update{suffix}.*");
        let wants = format!("/etc/systemd/system/*.wants/refit{suffix}.service");
        let wants = format!("{wants} /etc/systemd/system/*.wants/refit-update{suffix}.*");
        let script = format!(
            "find {bin} {units}* {updater} {wants} {data}/active {data}/versions/[0-9]* ! -type d \
             -printf '%p %i %s %T@ %l\\n' | sort"
        );
        self.host.run(&["sh", "-c", &script]).good()
    }

    /// All that is named after it, where anybody might look for it.
    fn left(&self) -> Vec<String> {
        let script = "find /usr/local /opt /etc /run/systemd /var/lib/refit* -name '*refit*' \
                      ! -path '*/versions/*' | sort";
        let found = self.host.run(&["sh", "-c", script]).good();
        let is_its = |path: &&str| path.contains("refit-b") || path.contains("refit-update-b");
        let found = found.lines().filter(|path| is_its(path) != self.suffix.is_empty());
        // These two are of the tests.
        let found = found.filter(|path| !path.ends_with(".timer.d") && !path.ends_with(".path.d"));
        found.map(str::to_owned).collect()
    }
}

/// What the first agent's data is, byte for byte.
fn data(host: &Host, names: &str) -> String {
    let script = format!("find /var/lib/refit/proc -name '{names}' -type f -exec sha256sum {{}} + | sort");
    host.run(&["sh", "-c", &script]).good()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_share_nothing_and_one_can_be_removed() {
    let host = Host::enabled().await;
    let (first, second) = (Agent { host: &host, suffix: "" }, Agent { host: &host, suffix: "-b" });
    let of_first = first.files();
    let enabled = host.enable_by(&["/root/refit/refit-update", "--install-suffix", "b"]).good();
    assert!(enabled.ends_with("Installed 1.2.3.\n"), "{enabled}");
    host.configure("/etc/refit-b.yaml");
    host.run(&["systemctl", "enable", "--now", "refit-b"]).good();
    let identity = first.connects().await["host_id"].clone();
    assert_ne!(second.connects().await["host_id"], identity);
    for unit in ["refit-update-b.timer", "refit-update-b.path"] {
        let is = |verb| host.run(&["systemctl", verb, unit]).stdout.trim().to_owned();
        assert_eq!((is("is-active"), is("is-enabled")), ("active".into(), "enabled".into()), "{unit}");
    }

    // Two versions at once.
    first.update(&["pin", "1.2.3"]).good();
    host.cluster.choose("1.2.4");
    let before = first.runs();
    let said = second.update(&["update"]).good();
    assert!(said.contains("from 1.2.3 to 1.2.4"), "{said}");
    assert_eq!((first.files(), first.runs()), (of_first, before.clone()), "nothing of the first has changed");
    assert_eq!(second.runs().0, "1.2.4");
    assert_eq!(first.update(&["update"]).good(), "Nothing to do: 1.2.3 is active (pinned).\n");
    let mut versions: Vec<_> = host.cluster.nodes(host.machine.name());
    versions.sort_by_key(|node| node["host_id"] != identity);
    let versions: Vec<_> = versions.iter().map(|node| node["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["1.2.3", "1.2.4"], "the control plane knows both");

    // Without its first agent, the host still has the second.
    host.mark("of the first");
    let kept = KEPT.map(|path| std::fs::read(host.machine.path(path)).unwrap());
    let (of_second, second_runs) = (second.files(), second.runs());
    let removed = first.update(&["uninstall"]).good();
    assert!(removed.contains("configuration and data stay"), "{removed}");
    assert_eq!(first.left(), ["/etc/refit.yaml", "/var/lib/refit"], "nothing else of it is there");
    assert_eq!(host.machine.show("refit.service", "LoadState"), "not-found");
    assert!(!host.machine.path("/var/lib/refit/versions").exists());
    assert!(host.machine.path("/var/lib/refit/active").symlink_metadata().is_err());
    assert_eq!(
        host.run(&["systemctl", "list-unit-files", "--no-legend", "refit.*", "refit-update.*"]).stdout,
        ""
    );
    assert_eq!(KEPT.map(|path| std::fs::read(host.machine.path(path)).unwrap()), kept);
    assert_eq!(host.marks(), ["of the first"]);
    assert_eq!((second.files(), second.runs()), (of_second, second_runs.clone()), "nothing of the second");

    // It is the same agent when it is back, and joins nothing.
    let bytes = data(&host, "sqlite.db");
    assert!(host.enable_by(&["/root/refit/refit-update"]).good().ends_with("Installed 1.2.4.\n"));
    assert_eq!(data(&host, "sqlite.db"), bytes);
    let config = String::from_utf8(kept[0].clone()).unwrap();
    let without: String =
        config.lines().filter(|line| !line.contains("token")).map(|line| format!("{line}\n")).collect();
    std::fs::write(host.machine.path("/etc/refit.yaml"), without).unwrap();
    host.run(&["systemctl", "enable", "--now", "refit"]).good();
    assert_eq!(first.connects().await["host_id"], identity);
    assert_eq!(
        (host.active(), host.runs(), host.marks()),
        ("1.2.4".into(), "1.2.4".into(), vec!["of the first".to_owned()])
    );

    let (of_first, first_runs) = (first.files(), first.runs());
    second.update(&["uninstall"]).good();
    assert_eq!(second.left(), ["/etc/refit-b.yaml", "/var/lib/refit-b"], "nothing else of it is there");
    assert_eq!((first.files(), first.runs()), (of_first, first_runs));
    assert_eq!(host.machine.show("refit-b.service", "LoadState"), "not-found");

    // Also what does not run and was never told is left as it was.
    host.run(&["systemctl", "stop", "refit"]).good();
    let bytes = data(&host, "*");
    assert!(bytes.contains("sqlite.db"), "{bytes}");
    first.update(&["uninstall"]).good();
    assert_eq!(data(&host, "*"), bytes);
}
