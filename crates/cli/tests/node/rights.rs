//! The agent with no more capabilities than `check` asks for, because a manifest gives a container exactly these.

use std::fs;
use std::process::Command;

use crate::lab::{Lab, counters};
use crate::{older, web};

/// The program that takes all capabilities away but those that `check` asks for.
fn setpriv(but: &str) -> Vec<String> {
    let rights = crowfly_node::check::rights().filter(|name| *name != but);
    let rights = rights.map(|name| {
        let name = name.strip_prefix("CAP_").unwrap().to_lowercase();
        format!(",+{name}")
    });
    let rights: String = rights.collect();
    let bounding = format!("--bounding-set=-all{rights}");
    vec!["setpriv".to_owned(), bounding, "--inh-caps=-all".to_owned()]
}

/// The kernel takes the programs from a process that has the capabilities which `check` asks for, and no
/// others. A manifest gives a container exactly these. The check says which part does not work with them.
#[test]
fn the_capabilities_that_the_check_asks_for_are_enough() {
    let Some(lab) = Lab::new() else { return };
    let check = |but: &str| {
        let by = setpriv(but);
        let output = Command::new(&by[0])
            .args(&by[1..])
            .arg(env!("CARGO_BIN_EXE_crowfly"))
            .args(["node", "check", "--pins"])
            .arg(lab.pins())
            .output()
            .unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), found)
    };
    let (ok, found) = check("");
    assert!(ok && found.contains("ok   programs"), "{found}");
    let missing = "not ended in other network namespaces: no CAP_SYS_ADMIN and no CAP_SYS_PTRACE";
    assert!(
        found.contains("WARN sockets") && found.contains(missing),
        "{found}"
    );
    let (ok, found) = check("CAP_PERFMON");
    assert!(!ok && found.contains("no CAP_PERFMON"), "{found}");
}

/// An agent with these capabilities routes, counts and follows its file. So does the next one, which adopts its maps and
/// replaces its programs, and no connection fails.
#[test]
fn an_agent_with_these_capabilities_routes_and_is_restarted() {
    let Some(lab) = Lab::new() else { return };
    let mut probe = lab.probe();
    probe.ask("serve-tcp 127.0.0.1:8080 a");
    probe.ask("serve-tcp 127.0.0.2:8080 b");
    let by = setpriv("");
    let by: Vec<_> = by.iter().map(String::as_str).collect();
    fs::write(lab.config(), web("10.96.0.10", "", &["127.0.0.1:8080"])).unwrap();
    let agent = lab.adopt_by(&by, &[]);
    // CAP_NET_ADMIN is 12, CAP_PERFMON 38 and CAP_BPF 39.
    assert_eq!(agent.status("CapEff:"), "000000c000001000");
    assert_eq!(probe.ask("tcp 10.96.0.10:80 5"), "a=5");
    agent.wait(|view| counters(&view.frontends[0]) == (5, 0, 0));

    let before = older::links(&lab);
    probe.ask("storm 10.96.0.10:80");
    agent.stop();
    let agent = lab.adopt_by(&by, &[]);
    for (name, now) in older::links(&lab) {
        assert_eq!(now.id, before[&name].id, "{name}");
        assert_ne!(now.program, before[&name].program, "{name}");
    }
    let counts = probe.counts("calm");
    assert_eq!(counts.len(), 1, "{counts:?}");
    assert_eq!(counts[0].0, "a", "{counts:?}");
    let opened = 5 + counts[0].1 as u64;
    agent.wait(|view| counters(&view.frontends[0]) == (opened, 0, 0));
    agent.apply(&web("10.96.0.10", "", &["127.0.0.2:8080"]));
    assert_eq!(probe.ask("tcp 10.96.0.10:80 5"), "b=5");
}
