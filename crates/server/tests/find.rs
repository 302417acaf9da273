//! The `find` endpoint over real TLS: responses, malformed requests, slow clients and rate limits.

#![allow(clippy::unwrap_used, dead_code)]

mod cluster;

#[path = "find/answers.rs"]
mod answers;
#[path = "find/bad_input.rs"]
mod bad_input;
#[path = "find/client.rs"]
mod client;
#[path = "find/often.rs"]
mod often;
#[path = "find/slowly.rs"]
mod slowly;

use std::time::Duration;

use refit_server::{Server, Settings};
use refit_testbed::eventually;
use tempfile::TempDir;

use crate::client::Client;
use crate::cluster::{settings, start};

/// What a server says to everyone while no operator has chosen a version.
const UNCHOSEN: &str = concat!(
    r#"{"server_edition":"oss","agent_version":""#,
    env!("CARGO_PKG_VERSION"),
    r#"","agent_auto_update":false,"agent_update_jitter_seconds":0,"edition":"oss","fips":false,"#,
    r#""auto_update":{"agent_version":""#,
    env!("CARGO_PKG_VERSION"),
    r#"","agent_auto_update":false,"agent_update_jitter_seconds":0}}"#,
    "\n"
);
const HOST: &str = "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55";

/// A server with a store of its own, whose limit is `per_second`. Without a limit, it has read its store: before that no
/// version is named to hosts that may be new.
async fn server(per_second: u32) -> (Server, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { find_requests_per_second: Some(per_second), ..settings(directory.path()) };
    let server = start(settings).await.unwrap();
    if per_second == 0 {
        let has_read = async || {
            let mut client = Client::connect(&server).await;
            !ask(&mut client, "/v1/webapi/find").await.body.contains("withheld")
        };
        eventually("the store is read", Duration::from_secs(60), has_read).await;
    }
    (server, directory)
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: refit\r\n\r\n")
}

async fn ask(client: &mut Client, target: &str) -> client::Reply {
    client.ask(&get(target)).await
}
