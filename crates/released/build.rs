//! Generates the wire types of releases from their `.proto` files, which never change.

use std::error::Error;
use std::path::PathBuf;

const PROTOS: &str = "../proto/released/0.1";

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "refit/v1/metadata.proto",
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
    println!("cargo::rerun-if-changed={PROTOS}");
    let descriptors = protox::compile(files, [PROTOS])?;
    let encoded = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(encoded, protox::prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
