//! `docs/scenarios.md` and the tests say the same.

use std::fs;
use std::path::Path;

use crowfly_e2e::scenarios::{check, sources};

#[test]
fn each_scenario_has_its_tests_and_each_cited_scenario_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("docs/scenarios.md")).unwrap();
    let problems = check(&document, &sources(&root).unwrap());
    assert!(
        problems.is_empty(),
        "docs/scenarios.md:\n{}",
        problems.join("\n")
    );
}
