//! Keeps `docs/scenarios.md` and the tests together.
//!
//! The document lists each scenario with the tests that show it, and each test
//! names its scenarios in its doc comment (`/// S1-02: ...`). A test that is
//! renamed, or a scenario that nobody wrote down, would leave one of them
//! wrong without a word; so both directions are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// Rust files by their path from the root of the repository.
pub type Sources = BTreeMap<String, String>;

/// What is wrong between the document and the tests; empty if nothing is.
pub fn check(document: &str, sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for (number, row) in rows(document) {
        let place = format!("line {number}, {}", row.id);
        if !is_id(row.id) {
            problems.push(format!("{place}: expected an id such as S1-02"));
        }
        if !listed.insert(row.id) {
            problems.push(format!("{place}: listed twice"));
        }
        if row.tests.is_empty() {
            problems.push(format!("{place}: no test"));
        }
        let wrong = row
            .tests
            .iter()
            .filter_map(|test| check_test(row.id, test, sources));
        problems.extend(wrong.map(|problem| format!("{place}: {problem}")));
    }
    for (path, text) in sources {
        for (id, line) in citations(text) {
            if !listed.contains(id) {
                problems.push(format!("{path}:{line} cites {id}, which is not listed"));
            }
        }
    }
    problems
}

/// Every Rust file below `root/crates`.
///
/// # Errors
///
/// If a folder or a file cannot be read.
pub fn sources(root: &Path) -> io::Result<Sources> {
    let mut sources = Sources::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap_or(&path);
                sources.insert(name.display().to_string(), fs::read_to_string(&path)?);
            }
        }
    }
    Ok(sources)
}

/// A row of the table: `| id | what it shows | source | test |`.
struct Row<'a> {
    id: &'a str,
    tests: Vec<&'a str>,
}

fn rows(document: &str) -> impl Iterator<Item = (usize, Row<'_>)> {
    document.lines().enumerate().filter_map(|(index, line)| {
        let cells: Vec<_> = line
            .trim()
            .strip_prefix('|')?
            .split('|')
            .map(str::trim)
            .collect();
        let id = *cells.first()?;
        if id == "id" || id.starts_with("--") || id.starts_with(":-") {
            return None;
        }
        // The last cell is what follows the closing bar.
        let tests = cells.len().checked_sub(2).map_or("", |last| cells[last]);
        let tests = tests.split("<br>").flat_map(|part| part.split(','));
        let tests = tests.map(|test| test.trim().trim_matches('`'));
        Some((
            index + 1,
            Row {
                id,
                tests: tests.filter(|test| !test.is_empty()).collect(),
            },
        ))
    })
}

/// What is wrong with `path/to/file.rs::test_fn` as a test of `id`.
fn check_test(id: &str, test: &str, sources: &Sources) -> Option<String> {
    let Some((path, function)) = test.split_once("::") else {
        return Some(format!("{test}: expected path/to/file.rs::test_fn"));
    };
    let Some(text) = sources.get(path) else {
        return Some(format!("{test}: no such file"));
    };
    // A path through inner modules is welcome; the name itself is what counts.
    let function = function.rsplit("::").next().unwrap_or(function);
    let Some(heading) = heading(text, function) else {
        return Some(format!("{test}: no such function"));
    };
    if !heading.iter().any(|line| is_test_attribute(line)) {
        return Some(format!("{test}: not a test"));
    }
    let cites = |line: &&str| words(line).any(|word| word == id);
    if !heading.iter().any(cites) {
        return Some(format!("{test}: its doc comment does not cite {id}"));
    }
    None
}

/// The comment and attributes above a function: the lines up to a blank one or
/// the end of another item.
fn heading<'a>(text: &'a str, function: &str) -> Option<Vec<&'a str>> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let is_it = |line: &&str| {
        let after = line.split_once("fn ").map(|(_, after)| after.trim_start());
        after.is_some_and(|after| {
            after
                .strip_prefix(function)
                .is_some_and(|rest| rest.starts_with(['(', '<']))
        })
    };
    let at = lines
        .iter()
        .position(|line| !line.starts_with("//") && is_it(line))?;
    let above = lines[..at].iter().rev().copied();
    Some(
        above
            .take_while(|line| !line.is_empty() && *line != "}")
            .collect(),
    )
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[") && words(line).any(|word| word == "test")
}

/// The ids that doc comments begin with (`/// S1-02, S1-03: ...`), with their
/// line.
fn citations(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        let comment = line.trim().strip_prefix("/// ").unwrap_or_default();
        let head = comment.split_once(':').map_or("", |(head, _)| head);
        let ids = head
            .split([',', ' ', '/', '`'])
            .filter(|word| !word.is_empty());
        // "and" may stand between two ids; any other word is a sentence.
        let ids: Vec<_> = ids.filter(|word| *word != "and").collect();
        let all = ids.iter().all(|word| is_id(word));
        ids.into_iter()
            .filter(move |_| all)
            .map(move |id| (id, index + 1))
    })
}

/// `S`, a section, `-`, a number.
fn is_id(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.strip_prefix('S')
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(section, number)| digits(section) && digits(number))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    // On one line with its beginning, or it would be a citation itself.
    const TEST: &str = "/// S1-02, S1-03: a late ACK changes nothing.
///
/// More about it.
#[tokio::test(flavor = \"multi_thread\")]
async fn late_ack() {
}
/// Another one.
fn helper() {}
";

    fn problems(rows: &str, source: &str) -> Vec<String> {
        let document =
            format!("# Scenarios\n\n| id | shows | source | test |\n|--|--|--|--|\n{rows}");
        check(
            &document,
            &Sources::from([("crates/x/a.rs".to_owned(), source.to_owned())]),
        )
    }

    #[test]
    fn a_list_that_matches_has_no_problems() {
        let rows = "| S1-02 | a | b | `crates/x/a.rs::late_ack` |\n\
                    | S1-03 | a | b | crates/x/a.rs::tests::late_ack<br>crates/x/a.rs::late_ack, |";
        assert_eq!(problems(rows, TEST), [""; 0]);
    }

    #[test]
    fn each_kind_of_problem_is_found() {
        let found = |row: &str| problems(row, &TEST.replace("S1-03", "S1-02")).join("\n");
        let good = "| S1-02 | a | b | crates/x/a.rs::late_ack |\n";
        assert_eq!(found(good), "");
        for (row, expected) in [
            (
                "| S1-2x | a | b | crates/x/a.rs::late_ack |",
                "expected an id",
            ),
            (
                "| S1-02 | a | b | crates/x/a.rs::late_ack |",
                "line 6, S1-02: listed twice",
            ),
            ("| S1-04 | a | b | |", "no test"),
            (
                "| S1-04 | a | b | crates/x/b.rs::late_ack |",
                "no such file",
            ),
            (
                "| S1-04 | a | b | crates/x/a.rs::late |",
                "no such function",
            ),
            ("| S1-04 | a | b | crates/x/a.rs::helper |", "not a test"),
            (
                "| S1-04 | a | b | crates/x/a.rs |",
                "expected path/to/file.rs::test_fn",
            ),
            (
                "| S1-04 | a | b | crates/x/a.rs::late_ack |",
                "does not cite S1-04",
            ),
        ] {
            let found = found(&format!("{good}{row}"));
            assert!(found.contains(expected), "{row}: {found}");
        }
    }

    #[test]
    fn a_cited_id_must_be_listed() {
        let found = problems("| S1-02 | a | b | crates/x/a.rs::late_ack |", TEST);
        assert_eq!(found, ["crates/x/a.rs:1 cites S1-03, which is not listed"]);
        // Ids in a sentence are no citation.
        assert_eq!(
            problems("", "/// As in S1-03: see there.\nfn f() {}"),
            [""; 0]
        );
    }
}
