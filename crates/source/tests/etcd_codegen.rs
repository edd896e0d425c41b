//! Keeps the committed Rust of etcd's API equal to its `.proto`, so that a build needs neither protoc
//! nor a build script.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::{env, fs};

const GENERATED: &str = "src/etcd/generated/etcdserverpb.rs";

/// Run with `CROWFLY_REGENERATE=1` to write the file anew after the `.proto` has changed.
#[test]
fn generated_code_is_that_of_the_proto_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let files = protox::compile(["etcd/rpc.proto"], [root.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .build_server(true)
        .bytes(".etcdserverpb")
        .skip_debug([".etcdserverpb.AuthenticateRequest"])
        .out_dir(out.path())
        .compile_fds(files)
        .unwrap();
    let fresh = fs::read_to_string(out.path().join("etcdserverpb.rs")).unwrap();

    let committed = root.join(GENERATED);
    if env::var_os("CROWFLY_REGENERATE").is_some() {
        fs::write(&committed, &fresh).unwrap();
    }
    let committed = fs::read_to_string(committed).unwrap();
    assert!(
        committed == fresh,
        "{GENERATED} is not what its .proto generates; run this test with CROWFLY_REGENERATE=1"
    );
}
