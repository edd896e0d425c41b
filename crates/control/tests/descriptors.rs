//! The descriptor set is a copy of the one the generated types came from, and must stay one.

use std::path::Path;
use std::process::Command;

#[test]
fn the_descriptor_set_is_that_of_the_generated_types() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--manifest-path",
            manifest,
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages
        .iter()
        .find(|p| p["name"] == "envoy-types")
        .unwrap();
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());

    let theirs = std::fs::read(manifest.with_file_name("src/generated/types.bin")).unwrap();
    let ours = include_bytes!("../proto/envoy-types.bin");
    assert!(
        theirs == ours,
        "copy envoy-types' types.bin to crates/control/proto/envoy-types.bin"
    );
}
