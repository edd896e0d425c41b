//! The agent with as few rights as it says it needs.

use std::process::Command;

use crate::lab::Lab;

/// The kernel takes the programs from a process that has the capabilities which `check` asks for, and no
/// others. A manifest gives a container exactly these. The check says which part does not work with them.
#[test]
fn the_capabilities_that_the_check_asks_for_are_enough() {
    let Some(lab) = Lab::new() else { return };
    let rights = crowfly_node::check::rights().map(|name| {
        let name = name.strip_prefix("CAP_").unwrap().to_lowercase();
        format!(",+{name}")
    });
    let rights: String = rights.collect();
    let check = |rights: &str| {
        let output = Command::new("setpriv")
            .arg(format!("--bounding-set=-all{rights}"))
            .arg("--inh-caps=-all")
            .arg(env!("CARGO_BIN_EXE_crowfly"))
            .args(["node", "check", "--pins"])
            .arg(lab.pins())
            .output()
            .unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), found)
    };
    let (ok, found) = check(&rights);
    assert!(ok && found.contains("ok   programs"), "{found}");
    let missing = "not ended in other network namespaces: no CAP_SYS_ADMIN and no CAP_SYS_PTRACE";
    assert!(
        found.contains("WARN sockets") && found.contains(missing),
        "{found}"
    );
    let (ok, found) = check(&rights.replace(",+perfmon", ""));
    assert!(!ok && found.contains("no CAP_PERFMON"), "{found}");
}
