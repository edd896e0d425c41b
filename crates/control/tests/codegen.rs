//! Keeps the committed Rust of the conformance adapter equal to its `.proto`, so that a build needs
//! neither protoc nor a build script.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::{env, fs, path::Path};

const CODE: &str = "src/conformance/generated/adapter.rs";

/// Run with `CROWFLY_REGENERATE=1` to write the file anew after the `.proto` has changed.
#[test]
fn generated_code_is_that_of_the_proto_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let files = protox::compile(["adapter.proto"], [root.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .out_dir(out.path())
        .compile_well_known_types(true)
        .extern_path(".google.protobuf", "::envoy_types::pb::google::protobuf")
        .compile_fds(files)
        .unwrap();
    let fresh = fs::read(out.path().join("adapter.rs")).unwrap();
    let committed = root.join(CODE);
    if env::var_os("CROWFLY_REGENERATE").is_some() {
        fs::write(&committed, &fresh).unwrap();
    }
    assert!(
        fs::read(committed).unwrap() == fresh,
        "{CODE} is not what its .proto generates; run this test with CROWFLY_REGENERATE=1"
    );
}
