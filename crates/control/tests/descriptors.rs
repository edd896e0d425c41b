//! The descriptor set is a copy of the one the generated types came from, and must stay one.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_descriptor_set_is_that_of_the_generated_types() {
    let theirs = fs::read(sources_of("envoy-types").join("src/generated/types.bin")).unwrap();
    let ours = include_bytes!("../proto/envoy-types.bin");
    assert!(
        theirs == ours,
        "copy envoy-types' types.bin to crates/control/proto/envoy-types.bin"
    );
}

/// The folder of a dependency's sources, in the locked version.
///
/// Cargo tells it offline, for a package that has this dependency alone and for this platform:
/// asked about the workspace, it wants crates that a build of this test does not download.
fn sources_of(dependency: &str) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let probe = tempfile::tempdir().unwrap();
    let manifest = probe.path().join("Cargo.toml");
    let package = format!(
        "[package]\nname = \"probe\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\n{dependency} = \"*\"\n"
    );
    fs::write(&manifest, package).unwrap();
    fs::copy(
        workspace.join("Cargo.lock"),
        probe.path().join("Cargo.lock"),
    )
    .unwrap();
    fs::create_dir(probe.path().join("src")).unwrap();
    fs::write(probe.path().join("src/lib.rs"), "").unwrap();

    let metadata = cargo(&[
        "metadata",
        "--offline",
        "--format-version=1",
        "--filter-platform",
        &this_platform(),
        "--manifest-path",
        manifest.to_str().unwrap(),
    ]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|p| p["name"] == dependency).unwrap();
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    manifest.parent().unwrap().to_owned()
}

fn this_platform() -> String {
    let version = cargo(&["--version", "--verbose"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.unwrap().to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        // Where the workspace's own Cargo settings are found.
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}
