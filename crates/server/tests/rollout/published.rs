//! What is not there cannot be chosen: archives and checksums for every platform of the fleet.

use std::path::Path;

use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::resources::v1::{Resource, UpsertResourceRequest};
use refit_testbed::publish;
use refit_types::{Build, CHECKSUM_SUFFIX, Edition, Platform, host_arch};
use serde_json::json;
use tonic::{Code, Status};

use crate::world::{World, host};

async fn choose(world: &World, version: &str, schedule: &str, allow_missing: bool) -> Result<(), Status> {
    let spec = json!({ "agent_version": version, "agent_version_schedule": schedule });
    let document = json!({ "kind": "autoupdate_version", "spec": spec });
    let request = UpsertResourceRequest {
        kind: "autoupdate_version".into(),
        resource: Some(Resource { json: document.to_string(), ..Default::default() }),
        allow_missing,
        ..Default::default()
    };
    ResourceServiceClient::new(world.admin.clone()).upsert_resource(request).await.map(drop)
}

#[track_caller]
fn refused(answer: Result<(), Status>, words: &[&str]) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    for wanted in words {
        assert!(status.message().contains(wanted), "{wanted:?} is not in {:?}", status.message());
    }
}

fn archive(version: &str, edition: Edition, arch: &str) -> String {
    let build = Build { edition, os: "linux".into(), arch: arch.into() };
    build.archive_name(&version.parse().unwrap())
}

fn put(artifacts: &Path, archive: &str) {
    std::fs::write(artifacts.join(archive), "an archive").unwrap();
    std::fs::write(artifacts.join(format!("{archive}{CHECKSUM_SUFFIX}")), "its checksum").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_chosen_only_if_every_platform_of_the_fleet_can_download_it() {
    let world = World::start(1).await;
    let artifacts = world.artifacts();
    let own = archive("15.1.0", Edition::Oss, host_arch());

    // Without hosts it is this server's own platform that counts.
    let answer = choose(&world, "15.1.0", "regular", false).await;
    refused(answer, &[&own, "Nothing is published there.", "--allow-missing"]);
    std::fs::write(artifacts.join(&own), "an archive").unwrap();
    let answer = choose(&world, "15.1.0", "regular", false).await;
    refused(answer, &[&format!("lack {own}{CHECKSUM_SUFFIX}.")]);
    publish(&artifacts, &["15.1.0", "15.1.1"]);
    choose(&world, "15.1.0", "regular", false).await.unwrap();

    // Hosts of agents that do not report their platform count as hosts of this one.
    world.add(1..3, "prod").await;
    choose(&world, "15.1.1", "regular", false).await.unwrap();
    for (n, edition, arch) in [(1, Edition::Oss, "s390x"), (2, Edition::EnterpriseFips, "riscv64")] {
        world
            .change(host(n), |host| {
                let report = host.report.as_mut().unwrap();
                report.edition = edition.into();
                report.platform = Some(Box::new(Platform::new("linux", "debian 13", arch).unwrap()));
            })
            .await;
    }
    world.until_platforms_are_known(2).await;
    let [mainframe, board] = [(Edition::Oss, "s390x"), (Edition::EnterpriseFips, "riscv64")]
        .map(|(edition, arch)| archive("15.1.0", edition, arch));
    let there =
        format!("Published there: 15.1.1 (oss linux/{arch}), 15.1.0 (oss linux/{arch}).", arch = host_arch());
    let both = "15.1.0 is not published for oss linux/s390x, enterprise-fips linux/riscv64";
    refused(choose(&world, "15.1.0", "regular", false).await, &[both, &mainframe, &board, &there]);
    put(&artifacts, &mainframe);
    refused(
        choose(&world, "15.1.0", "regular", false).await,
        &["15.1.0 is not published for enterprise-fips linux/riscv64"],
    );
    put(&artifacts, &board);
    choose(&world, "15.1.0", "regular", false).await.unwrap();

    // A mirror elsewhere; and another schedule is no other version.
    choose(&world, "15.3.0", "regular", true).await.unwrap();
    choose(&world, "15.3.0", "critical", false).await.unwrap();
    world.shut_down().await;
}
