//! Checks that one file of the channel names its HTTP/2, so that another one can take its place.

use std::fs;
use std::path::{Path, PathBuf};

/// ARCHITECTURE.md: one seam file, so that another HTTP/2 can take the place of ours.
#[test]
fn one_file_of_the_channel_names_its_http2() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let named: Vec<PathBuf> = files(&source)
        .into_iter()
        .filter(|file| fs::read_to_string(file).unwrap().contains("crowfly_http2"))
        .collect();
    assert_eq!(named, [source.join("transport/http2.rs")]);
}

/// Every test over our HTTP/2 also runs over `h2`, except those that are listed.
#[test]
fn tests_that_do_not_run_over_h2_are_listed_by_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transport");
    let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    let (ours, over_h2) = (text("main.rs"), text("over_h2.rs"));
    let runs_over_h2 = |line: &&str| over_h2.lines().any(|other| other == *line);
    let left_out: Vec<&str> = ours
        .lines()
        .filter(|line| line.starts_with("mod "))
        .filter(|line| !runs_over_h2(line))
        .collect();
    let need_no_connection = ["mod replay;", "mod seam;"];
    let beyond = ["mod beyond_h2;", "mod never_sent;"];
    assert_eq!(left_out, [beyond, need_no_connection].concat());
    let beyond = [text("beyond_h2.rs"), text("never_sent.rs")].concat();
    for name in tests_of(&beyond) {
        let listed = format!("//! - `{name}`");
        assert!(over_h2.contains(&listed), "over_h2.rs does not list {name}");
    }
}

/// The names of the functions that an attribute makes tests.
fn tests_of(source: &str) -> Vec<&str> {
    let lines: Vec<&str> = source.lines().collect();
    let is_test = |pair: &&[&str]| pair[0].starts_with("#[") && pair[0].contains("test");
    lines
        .windows(2)
        .filter(is_test)
        .filter_map(|pair| pair[1].split("fn ").nth(1)?.split('(').next())
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}
