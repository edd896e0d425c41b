//! The eBPF object in the repository is what its source gives.
//!
//! Debian's clang-14 and libbpf-dev build it. `$CROWFLY_NODE` decides what happens without them: with
//! `auto`, the default, the test is left out with a message; with `require` it fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn the_object_is_built_from_the_source() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let has_clang = Command::new("clang-14").arg("--version").output().is_ok();
    let has_headers = Path::new("/usr/include/bpf/bpf_helpers.h").exists();
    let mode = std::env::var("CROWFLY_NODE").unwrap_or_default();
    if mode == "off" || !(has_clang && has_headers) {
        let reason = "the_object_is_built_from_the_source: it needs clang-14 and libbpf-dev";
        assert!(mode != "require", "{reason}");
        return drop(writeln!(
            std::io::stderr(),
            "crowfly-node: left out {reason}"
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("crowfly.bpf.o");
    let output = Command::new(bpf.join("build"))
        .arg(&built)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let is_same = fs::read(built).unwrap() == fs::read(bpf.join("crowfly.bpf.o")).unwrap();
    assert!(
        is_same,
        "crates/node/bpf/build makes another object: commit that one"
    );
}

/// This crate allows itself unsafe code in one file. All other lints are those of the workspace.
#[test]
fn lints_are_those_of_the_workspace() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ours = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let all = fs::read_to_string(folder.join("../../Cargo.toml")).unwrap();
    for (of_all, of_ours) in [
        ("[workspace.lints.rust]", "[lints.rust]"),
        ("[workspace.lints.clippy]", "[lints.clippy]"),
    ] {
        let mut all = lints(&all, of_all);
        let mut ours = lints(&ours, of_ours);
        all.retain(|lint| !lint.starts_with("unsafe_code"));
        ours.retain(|lint| !lint.contains("unsafe"));
        assert!(!all.is_empty());
        assert_eq!(ours, all);
    }
    let mut with_unsafe = Vec::new();
    let mut folders = vec![folder.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).unwrap().contains("unsafe {") {
                with_unsafe.push(
                    path.strip_prefix(env!("CARGO_MANIFEST_DIR"))
                        .unwrap()
                        .to_owned(),
                );
            }
        }
    }
    assert_eq!(with_unsafe, [Path::new("src/maps/ebpf/sys.rs")]);
}

/// The lines of a table, without their comments.
fn lints(manifest: &str, table: &str) -> Vec<String> {
    let (_, after) = manifest.split_once(&format!("{table}\n")).unwrap();
    let lines = after.lines().take_while(|line| !line.starts_with('['));
    let lines = lines.map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}
