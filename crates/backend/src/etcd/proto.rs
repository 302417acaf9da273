//! Generated from `proto/`.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::all)]

pub(crate) mod mvccpb {
    tonic::include_proto!("mvccpb");
}

pub(crate) mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
