//! A host whose agent came as a package of the system.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use refit_testbed::directory;

use crate::archives::{EXITS, archive};
use crate::host::Host;

const UNIT: &str = "[Unit]\nDescription=Agent of the package\n[Service]\nType=notify\n\
                    ExecStart=/usr/bin/refit agent start\nExecReload=/bin/kill -HUP $MAINPID\nRestart=on-failure\n\
                    [Install]\nWantedBy=multi-user.target\n";

/// As Debian's tools write them, with a last line of the vendor's own.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", "deb-systemd-helper enable refit.service >/dev/null\nsystemctl --system daemon-reload"),
    ("prerm", "if [ \"$1\" = remove ]; then deb-systemd-invoke stop refit.service >/dev/null; fi"),
    (
        "postrm",
        "if [ \"$1\" = remove ]; then systemctl --system daemon-reload; deb-systemd-helper mask refit.service; fi
if [ \"$1\" = purge ]; then deb-systemd-helper purge refit.service; deb-systemd-helper unmask refit.service; fi
if [ \"$1\" = purge ]; then rm -rf /var/lib/refit; fi",
    ),
];

/// The real agent of 1.2.3, on its way to a host.
fn install(host: &Host) {
    let folder = directory();
    let put = |path: &str, bytes: &[u8], mode: u32| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let control = "Package: refit\nVersion: 1.2.3\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\n\
                   Description: the agent as a package\n";
    put("DEBIAN/control", control.as_bytes(), 0o644);
    put("DEBIAN/conffiles", b"/etc/refit.yaml\n", 0o644);
    for (name, script) in SCRIPTS {
        put(&format!("DEBIAN/{name}"), format!("#!/bin/sh\nset -e\n{script}\n").as_bytes(), 0o755);
    }
    put("etc/refit.yaml", b"refit: {}\n", 0o644);
    put("lib/systemd/system/refit.service", UNIT.as_bytes(), 0o644);
    let unpacked =
        Command::new("tar").arg("-xzOf").arg(archive("1.2.3")).arg("refit/refit").output().unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    put("usr/bin/refit", &unpacked.stdout, 0o755);
    let mut build = Command::new("dpkg-deb");
    build.args(["-Znone", "--root-owner-group", "--build"]).arg(folder.path());
    let built = build.arg(host.machine.path("/root/refit.deb")).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    host.run(&["dpkg", "--install", "/root/refit.deb"]).good();
}

/// Whose agent runs, and from where.
fn runs_from(host: &Host) -> String {
    let executable = format!("/proc/{}/exe", host.shows("MainPID"));
    host.run(&["readlink", &executable]).good().trim().into()
}

fn is_enabled(host: &Host) -> String {
    host.run(&["systemctl", "is-enabled", "refit"]).stdout.trim().into()
}

async fn connects(host: &Host) -> String {
    let status = async || host.run(&["/usr/bin/refit", "agent", "status", "--format", "json"]).stdout;
    let parsed = async || serde_json::from_str::<serde_json::Value>(&status().await).unwrap_or_default();
    refit_testbed::eventually("the package's agent", crate::cluster::PATIENCE, async || {
        parsed().await["connected"] == true
    })
    .await;
    parsed().await["host_id"].as_str().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_a_package_is_taken_over_once_another_works() {
    let host = Host::fresh().await;
    install(&host);
    host.configure("/etc/refit.yaml");
    host.run(&["systemctl", "restart", "refit"]).good();
    let identity = connects(&host).await;
    host.mark("of the package");
    let config = fs::read(host.machine.path("/etc/refit.yaml")).unwrap();
    let uuid = fs::read(host.machine.path("/var/lib/refit/host_uuid")).unwrap();
    assert_eq!((runs_from(&host), is_enabled(&host)), ("/usr/bin/refit".into(), "enabled".into()));

    host.cluster.choose(EXITS);
    let undone = host.enable();
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.stderr.contains(&format!("{EXITS} was tried and undone")), "{undone:?}");
    assert_eq!(connects(&host).await, identity);
    assert_eq!((runs_from(&host), is_enabled(&host)), ("/usr/bin/refit".into(), "enabled".into()));
    assert_eq!(host.shows("FragmentPath"), "/lib/systemd/system/refit.service");
    assert_eq!(host.marks(), ["of the package"]);
    let state = || host.run(&["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", "refit"]);
    assert_eq!(state().good(), "ii ");
    assert!(!host.machine.path("/usr/local/bin/refit").exists());

    host.cluster.choose("1.2.4");
    let enabled = host.enable_by(&["/root/refit/refit-update"]);
    assert!(enabled.stderr.contains("Purged the package refit"), "{enabled:?}");
    assert!(enabled.good().ends_with("Installed 1.2.4.\n"));
    for later in [false, true] {
        if later {
            let purged = host.run(&["apt-get", "purge", "-y", "refit"]);
            assert!(!purged.stdout.contains("Removing"), "{purged:?}");
        }
        host.connects().await;
        assert_eq!((host.active(), host.runs()), ("1.2.4".into(), "1.2.4".into()));
        assert_eq!(runs_from(&host), "/var/lib/refit/versions/1.2.4/bin/refit");
        assert_eq!(is_enabled(&host), "enabled");
        assert_eq!(host.shows("FragmentPath"), "/usr/local/lib/systemd/system/refit.service");
        assert_eq!(host.readiness().unwrap()["host_id"], identity.as_str());
        assert_eq!(host.marks(), ["of the package"]);
        assert_eq!(fs::read(host.machine.path("/etc/refit.yaml")).unwrap(), config);
        assert_eq!(fs::read(host.machine.path("/var/lib/refit/host_uuid")).unwrap(), uuid);
        assert_ne!(host.run(&["dpkg", "--list", "refit"]).code, Some(0), "dpkg knows nothing of it");
        assert!(!host.machine.path("/usr/bin/refit").exists());
    }
    assert_eq!(
        host.machine.show("multi-user.target", "Wants").split(' ').filter(|w| *w == "refit.service").count(),
        1
    );
}
