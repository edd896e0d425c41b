//! Checks the column of tests in `docs/scenarios.md`, because tests move and are renamed.

use std::fs;
use std::path::Path;

use crowfly_e2e::scenarios::{generate, sources};

/// Fails if the column is stale; with `CROWFLY_REGENERATE=1` it is written anew.
#[test]
fn column_of_tests_is_what_the_tests_cite() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("docs/scenarios.md");
    let document = fs::read_to_string(&path).unwrap();
    let generated = match generate(&document, &sources(&root).unwrap()) {
        Ok(generated) => generated,
        Err(problems) => panic!("docs/scenarios.md:\n{}", problems.join("\n")),
    };
    if std::env::var_os("CROWFLY_REGENERATE").is_some() {
        fs::write(path, generated).unwrap();
        return;
    }
    let stale = document.lines().zip(generated.lines());
    let stale: Vec<_> = stale.filter(|(is, should)| is != should).collect();
    assert!(
        document == generated,
        "docs/scenarios.md is stale; CROWFLY_REGENERATE=1 writes it anew: {stale:#?}"
    );
}
