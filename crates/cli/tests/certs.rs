//! `crowfly certs` as a process. It writes private keys, so the tests check their permissions and
//! that no file is overwritten.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::{fs, str};

fn certs(out: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crowfly"));
    command.args(["certs", "--out"]).arg(out).args(arguments);
    command.output().unwrap()
}

fn error(output: &Output) -> &str {
    assert!(!output.status.success());
    str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn keys_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/certs");
    let output = certs(&out, &["web", "payments"]);
    assert!(output.status.success(), "{output:?}");
    let mut files: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            (file.file_name().into_string().unwrap(), mode)
        })
        .collect();
    files.sort();
    let keys = files.iter().filter(|(name, _)| name.ends_with(".key"));
    assert!(keys.clone().all(|(_, mode)| *mode == 0o600), "{files:?}");
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let expected =
        ["ca", "payments", "web"].map(|name| [format!("{name}.key"), format!("{name}.pem")]);
    assert_eq!(names, expected.concat());
    let told = str::from_utf8(&output.stdout).unwrap();
    for text in [
        "spiffe://example.org/web",
        "certificate_providers",
        "file_watcher",
    ] {
        assert!(told.contains(text), "{told}");
    }
    assert!(!told.contains("PRIVATE KEY"), "{told}");
}

/// A key that is lost is a fleet that must be restarted.
#[test]
fn no_file_is_overwritten_and_none_is_written_then() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("web.key");
    fs::write(&key, "mine").unwrap();
    let output = certs(dir.path(), &["web"]);
    assert!(error(&output).contains("web.key exists and is not overwritten"));
    assert_eq!(fs::read_to_string(&key).unwrap(), "mine");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn names_stay_in_their_directory() {
    let dir = tempfile::tempdir().unwrap();
    for bad in ["../web", "", "ca", ".web", "a/b", "Web"] {
        let output = certs(dir.path(), &["--", bad]);
        error(&output);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{bad}");
    }
    error(&certs(dir.path(), &["--days", "0", "web"]));
}
