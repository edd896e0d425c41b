//! A limit on the lines of code of the crate (ARCHITECTURE.md), because all of them must be
//! maintained here.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::path::Path;

/// ARCHITECTURE.md: a client for gRPC and nothing else. A larger crate would do more than that.
const LIMIT: usize = 3_000;

#[test]
fn the_crate_has_fewer_than_3000_lines_of_code() {
    let lines = lines_of_code(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    println!("{lines} lines of code");
    assert!(lines > 1_000, "{lines} lines: the count is wrong");
    assert!(lines < LIMIT, "{lines} lines of code");
}

/// Lines that are neither blank, nor comments, nor tests.
fn lines_of_code(path: &Path) -> usize {
    if path.is_dir() {
        let entries = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let is_product = |path: &_| Path::file_stem(path) != Some("tests".as_ref());
        return entries
            .filter(|path| is_product(path))
            .map(|path| lines_of_code(&path))
            .sum();
    }
    let text = fs::read_to_string(path).unwrap();
    // The tests inside a file end it.
    let product = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    product.lines().filter(is_code).count()
}
