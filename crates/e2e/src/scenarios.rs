//! Writes the column of tests in `docs/scenarios.md`.
//!
//! People write a scenario's id, its promise and its rule. This module finds the tests that show it, because
//! a list kept by hand becomes wrong when a test moves. A test cites the ids of its scenarios in its doc
//! comment (`/// S1-02: ...`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// Rust files by their path from the root of the repository.
pub type Sources = BTreeMap<String, String>;

/// The document with its column of tests as `sources` have them.
///
/// # Errors
///
/// The problems, one in each line. A row must have four cells and an id. An id must be listed once,
/// and a test must cite it. A cited id must be listed.
pub fn generate(document: &str, sources: &Sources) -> Result<String, Vec<String>> {
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    let tests = tests_by_id(sources);
    let mut lines = Vec::new();
    for (index, line) in document.lines().enumerate() {
        let Some(row) = Row::read(line) else {
            lines.push(line.to_owned());
            continue;
        };
        let tests = tests
            .get(row.id)
            .map(|tests| tests.join("<br>"))
            .unwrap_or_default();
        let problem = match row {
            Row { id, .. } if !is_id(id) => Some("expected an id such as S1-02"),
            Row { id, .. } if !listed.insert(id) => Some("listed twice"),
            Row { rest: None, .. } => Some("expected `| id | promise | rule | tests |`"),
            _ if tests.is_empty() => Some("no test cites it"),
            _ => None,
        };
        problems.extend(problem.map(|what| format!("line {}, {}: {what}", index + 1, row.id)));
        let [promise, rule] = row.rest.unwrap_or_default();
        lines.push(format!("| {} | {promise} | {rule} | {tests} |", row.id));
    }
    problems.extend(unlisted(&listed, sources));
    if problems.is_empty() {
        Ok(lines.join("\n") + "\n")
    } else {
        Err(problems)
    }
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

/// A row of the table: `| id | promise | rule | tests |`.
struct Row<'a> {
    id: &'a str,
    /// Promise and rule, if the row has four cells.
    rest: Option<[&'a str; 2]>,
}

impl<'a> Row<'a> {
    /// `None` for text, and for the head of the table.
    fn read(line: &'a str) -> Option<Self> {
        let cells = line.trim().strip_prefix('|')?.trim_end_matches('|');
        let cells: Vec<_> = cells.split('|').map(str::trim).collect();
        let id = *cells.first()?;
        if id == "id" || id.starts_with("--") || id.starts_with(":-") {
            return None;
        }
        let rest = match *cells {
            [_, promise, rule] | [_, promise, rule, _] => Some([promise, rule]),
            _ => None,
        };
        Some(Self { id, rest })
    }
}

/// The tests that cite each id, as `path/to/file.rs::test_fn`, by path and then as they stand in their file.
fn tests_by_id(sources: &Sources) -> BTreeMap<&str, Vec<String>> {
    let mut tests: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in sources {
        for test in tests_in(text) {
            for id in test.ids {
                let tests = tests.entry(id).or_default();
                tests.push(format!("{path}::{}", test.name));
            }
        }
    }
    tests
}

/// A test function with the ids in its doc comment.
struct Test<'a> {
    name: &'a str,
    ids: BTreeSet<&'a str>,
}

/// The tests of a file: functions with a test attribute above them.
fn tests_in(text: &str) -> Vec<Test<'_>> {
    let mut tests = Vec::new();
    let mut ids = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            ids.extend(ids_in(comment));
        } else if line.starts_with("#[") {
            is_test |= words(line).any(|word| word == "test");
        } else if !line.starts_with("//") {
            let ids = std::mem::take(&mut ids);
            if let Some(name) = function(line).filter(|_| is_test) {
                tests.push(Test { name, ids });
            }
            is_test = false;
        }
    }
    tests
}

/// The citations of ids that are not listed, as problems.
fn unlisted(listed: &BTreeSet<&str>, sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in sources {
        for (index, line) in text.lines().enumerate() {
            let comment = line.trim().strip_prefix("///").unwrap_or_default();
            let unknown = ids_in(comment).filter(|id| !listed.contains(id));
            let problem = |id| format!("{path}:{} cites {id}, which is not listed", index + 1);
            problems.extend(unknown.map(problem));
        }
    }
    problems
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let qualifiers = ["async", "const", "pub"];
    if !words(before).all(|word| word.is_empty() || qualifiers.contains(&word)) {
        return None;
    }
    after.split(['(', '<']).next()
}

fn ids_in(comment: &str) -> impl Iterator<Item = &str> {
    words(comment).filter(|word| is_id(word))
}

/// True for an id. `S1-02` is of a client, and `N-02` of the node agent.
///
/// The other letters are of the control plane. P is the protocol, H the public suite, V views, and
/// F the feedback of clients. E is the list that every client runs, K the checks of configurations,
/// and L limits.
fn is_id(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let prefixes = ["E-", "F-", "H-", "K-", "L-", "N-", "P-", "V-"];
    if let Some(number) = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix)) {
        return digits(number);
    }
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

    // Each line begins with a quote: a doc comment would be a citation of this very file.
    const SOURCE: &str = concat!(
        "/// S1-02, S1-03: a late ACK changes nothing.\n",
        "///\n",
        "/// More about it.\n",
        "#[tokio::test(flavor = \"multi_thread\")]\n",
        "async fn late_ack() {\n",
        "}\n",
        "/// S1-03: no test.\n",
        "fn helper() {}\n",
        "/// A76, S1-02 (part): another one.\n",
        "#[test]\n",
        "#[should_panic]\n",
        "fn later() {\n",
        "}\n",
    );

    fn generated(rows: &str) -> Result<String, String> {
        let document =
            format!("# Scenarios\n\n| id | shows | rule | test |\n|--|--|--|--|\n{rows}\n");
        let sources = Sources::from([("crates/x/a.rs".to_owned(), SOURCE.to_owned())]);
        generate(&document, &sources).map_err(|problems| problems.join("\n"))
    }

    #[test]
    fn column_of_tests_is_written() {
        let document = generated("| S1-02 | a | A1 | old |\n| S1-03 | b | A2 |").unwrap();
        assert!(
            document.ends_with(
                "|--|--|--|--|\n\
                 | S1-02 | a | A1 | crates/x/a.rs::late_ack<br>crates/x/a.rs::later |\n\
                 | S1-03 | b | A2 | crates/x/a.rs::late_ack |\n"
            ),
            "{document}"
        );
        let rows = document.lines().skip(4).collect::<Vec<_>>().join("\n");
        assert_eq!(generated(&rows).unwrap(), document, "once is enough");
    }

    #[test]
    fn each_kind_of_problem_is_found() {
        let good = "| S1-02 | a | b | |\n| S1-03 | a | b | |";
        assert!(generated(good).is_ok());
        for (row, expected) in [
            ("| S1-2x | a | b | |", "line 7, S1-2x: expected an id"),
            ("| S1-02 | a | b | |", "line 7, S1-02: listed twice"),
            (
                "| S1-04 | a | b | late_ack |",
                "line 7, S1-04: no test cites it",
            ),
            ("| S1-04 | a |", "line 7, S1-04: expected `| id | promise"),
        ] {
            let found = generated(&format!("{good}\n{row}")).unwrap_err();
            assert!(found.contains(expected), "{row}: {found}");
        }
    }

    #[test]
    fn a_cited_id_must_be_listed() {
        let found = generated("| S1-02 | a | b | |").unwrap_err();
        let expected =
            [1, 7].map(|line| format!("crates/x/a.rs:{line} cites S1-03, which is not listed"));
        assert_eq!(found, expected.join("\n"));
    }
}
