//! Keeps the committed Rust of the test service equal to its `.proto`, so that a build needs neither
//! protoc nor a build script.

use std::{env, fs, path::Path};

use prost::Message;

const CODE: &str = "src/testing/generated/grpc.testing.rs";
const DESCRIPTORS: &str = "src/testing/generated/grpc.testing.bin";

/// Run with `CROWFLY_REGENERATE=1` to write the files anew after the `.proto` has changed.
#[test]
fn generated_code_is_that_of_the_proto_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let files = protox::compile(["grpc/testing/test.proto"], [root.join("proto")]).unwrap();
    let descriptors = files.encode_to_vec();
    tonic_prost_build::configure()
        .out_dir(out.path())
        .bytes(".grpc.testing.Payload.body")
        .compile_fds(files)
        .unwrap();
    let code = fs::read(out.path().join("grpc.testing.rs")).unwrap();
    for (path, fresh) in [(CODE, code), (DESCRIPTORS, descriptors)] {
        let committed = root.join(path);
        if env::var_os("CROWFLY_REGENERATE").is_some() {
            fs::write(&committed, &fresh).unwrap();
        }
        assert!(
            fs::read(committed).unwrap() == fresh,
            "{path} is not what its .proto generates; run this test with CROWFLY_REGENERATE=1"
        );
    }
}
