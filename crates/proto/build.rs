//! Generates the wire types from the `.proto` files, without protoc.

use std::error::Error;
use std::path::PathBuf;

/// Messages that carry a token: what they show of themselves is written by hand, in `src/redacted.rs`.
const SECRET: [&str; 3] = [
    ".refit.agent.v1.JoinRequest",
    ".refit.nodes.v1.CreateTokenResponse",
    ".refit.auth.v1.CreateWebLoginResponse",
];

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "refit/v1/metadata.proto",
        "refit/v1/host.proto",
        "refit/v1/rotation.proto",
        "refit/migrations/v1/migrations.proto",
        "refit/resources/v1/resources.proto",
        "refit/auth/v1/auth.proto",
        "refit/cluster/v1/cluster.proto",
        "refit/agent/v1/agent.proto",
        "refit/nodes/v1/nodes.proto",
        "refit/rotation/v1/rotation.proto",
        "refit/rollouts/v1/rollouts.proto",
        "refit/events/v1/events.proto",
    ];
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(files, ["proto"])?;
    let encoded = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(encoded, protox::prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().skip_debug(SECRET).compile_fds(descriptors)?;
    Ok(())
}
