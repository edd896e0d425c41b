//! The table of scenarios and clients in `docs/peers.md`.
//!
//! The table is generated from the list, because a table kept by hand would become wrong.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::LIST;
use super::kind::Kind;

const BEGIN: &str = "<!-- The table is generated: CROWFLY_REGENERATE=1 cargo test -p crowfly-e2e --test e2e scenario_list::table -->\n";
const END: &str = "<!-- End of the table -->\n";

/// Fails if the document has another table than the list; with `CROWFLY_REGENERATE=1` it is written
/// anew.
#[test]
fn the_document_has_the_table_of_the_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/peers.md");
    let document = fs::read_to_string(&path).unwrap();
    let (head, rest) = document.split_once(BEGIN).expect("the begin of the table");
    let (_, tail) = rest.split_once(END).expect("the end of the table");
    let generated = format!("{head}{BEGIN}{}{END}{tail}", table());
    if std::env::var_os("CROWFLY_REGENERATE").is_some() {
        fs::write(path, generated).unwrap();
        return;
    }
    assert!(
        document == generated,
        "docs/peers.md is stale; CROWFLY_REGENERATE=1 writes it anew:\n{generated}"
    );
}

/// Each scenario has an id of its own, and they are in order.
#[test]
fn ids_are_in_order() {
    let ids: Vec<_> = LIST.iter().map(|scenario| scenario.id.to_owned()).collect();
    let expected: Vec<_> = (1..=LIST.len())
        .map(|number| format!("E-{number:02}"))
        .collect();
    assert_eq!(ids, expected);
}

fn table() -> String {
    let mut table = String::from("| id | scenario |");
    let mut rule = String::from("|---|---|");
    for kind in Kind::ALL {
        let _ = write!(table, " {} |", kind.title());
        rule.push_str("---|");
    }
    table = format!("{table}\n{rule}\n");
    let mut reasons = Vec::new();
    for scenario in LIST {
        let _ = write!(table, "| {} | {} |", scenario.id, scenario.title);
        for kind in Kind::ALL {
            let Some(reason) = scenario.reason(kind) else {
                table.push_str(" yes |");
                continue;
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
            let number = reasons.iter().position(|known| *known == reason);
            let _ = write!(table, " no ({}) |", number.unwrap_or_default() + 1);
        }
        table.push('\n');
    }
    table.push('\n');
    for (index, reason) in reasons.iter().enumerate() {
        let _ = writeln!(table, "{}. {reason}", index + 1);
    }
    table
}
