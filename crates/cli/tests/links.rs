//! Every link from one document of the repository to another leads to a file, and to a heading of it.
//!
//! The test is needed because a renamed heading breaks links in other files, which their readers see first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, iter};

const FOLDERS: [&str; 4] = ["", "docs", "examples/first", "examples/hello"];

#[test]
fn links_between_documents_lead_somewhere() {
    let (mut found, mut dead) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            found += 1;
            if !leads_somewhere(&document, &link) {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(found >= 50, "{found}");
}

#[test]
fn a_link_to_a_missing_file_or_heading_is_dead() {
    let readme = root().join("README.md");
    assert!(leads_somewhere(&readme, "docs/config.md#views"));
    assert!(leads_somewhere(&readme, "#two-commands"));
    for dead in ["docs/nothing.md", "docs/config.md#nothing", "#nothing"] {
        assert!(!leads_somewhere(&readme, dead), "{dead}");
    }
}

fn leads_somewhere(document: &Path, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => document.to_owned(),
        path => document.parent().unwrap().join(path),
    };
    target.exists() && (heading.is_empty() || headings(&target).contains(heading))
}

fn documents() -> Vec<PathBuf> {
    let entries = FOLDERS.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|end| end == "md"))
        .collect()
}

/// The targets of links, without those to other sites.
fn links(text: &str) -> Vec<String> {
    let lines = prose(text);
    let targets = lines.iter().flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors that a forge makes of headings: small letters, digits, hyphens and underscores. A heading that comes again
/// gets a number.
fn headings(document: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(document).unwrap();
    let lines = prose(&text).into_iter();
    let titles = lines.filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    let anchor = |title: &str| -> String {
        let title = title.to_lowercase().replace(' ', "-");
        let is_kept = |letter: &char| letter.is_alphanumeric() || "-_".contains(*letter);
        title.chars().filter(is_kept).collect()
    };
    let mut anchors = BTreeSet::new();
    for anchor in titles.map(anchor) {
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut candidates = iter::once(anchor.clone()).chain(numbered);
        anchors.extend(candidates.find(|candidate| !anchors.contains(candidate)));
    }
    anchors
}

/// The lines outside of code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
