//! A person's command while a mirror keeps an update waiting.

use std::fs::File;
use std::process::{Child, Stdio};

use refit_testbed::{Proxy, eventually};

use crate::cluster::{Cluster, Image, PATIENCE, said};

/// An update that hangs in its download, as its log says.
async fn hanging_update(image: &Image) -> Child {
    let log = image.root.with_extension("log");
    let mut command = image.command(&["update", "--now"]);
    let child = command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    eventually("the download begins", PATIENCE, async || {
        std::fs::read_to_string(&log).unwrap().contains("Downloading 1.2.4 from")
    })
    .await;
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_an_operator_ends_a_download_that_hangs() {
    let cluster = Cluster::start().await;
    let mirror = Proxy::to(cluster.address.clone()).await;
    let base_url = format!("https://{}/v1/artifacts", mirror.endpoint());
    let image = cluster.installed();
    let enable = || said(&image.update(&["enable", "--base-url", &base_url]));
    enable();
    cluster.choose("1.2.4");
    mirror.set_blocked(true);
    for (command, told) in [
        (&["pin", "1.2.3"][..], "This host stays on 1.2.3"),
        (&["unpin"], "This host follows the cluster again"),
        (&["disable"], "Updates are disabled"),
        (&["uninstall"], "Removed what the updater had installed"),
    ] {
        let hanging = hanging_update(&image).await;
        let done = said(&image.update(command));
        assert!(done.contains(told), "{done}");
        let ended = said(&hanging.wait_with_output().unwrap());
        assert!(ended.contains("a command of an operator ended the download"), "{command:?}: {ended}");
        match command[0] {
            "pin" => drop(said(&image.update(&["unpin"]))),
            "disable" => {
                assert_eq!(image.status()["agent_updates_enabled"], false);
                mirror.set_blocked(false);
                cluster.choose("1.2.3");
                enable();
                cluster.choose("1.2.4");
                mirror.set_blocked(true);
            }
            _ => {}
        }
    }
    assert!(!image.root.join("var/lib/refit/versions").exists());
}
