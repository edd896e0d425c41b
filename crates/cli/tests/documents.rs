//! README and the documents: every configuration, bootstrap and command in them is valid, because
//! readers paste them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{CommandFactory, Parser};
use crowfly::Bootstrap;
use crowfly_cli::args::Cli;
use crowfly_control::{Catalog, ConfigFile, translate};

const DOCUMENTS: [&str; 7] = [
    "README.md",
    "docs/clients.md",
    "docs/config.md",
    "docs/control.md",
    "docs/envoy.md",
    "docs/loads.md",
    "docs/sessions.md",
];

const NODE: &str = "docs/node.md";

/// Every configuration is one that `crowfly control` serves, alone and as it stands.
#[test]
fn configurations_are_valid() {
    let mut found = 0;
    for document in DOCUMENTS {
        let yaml = blocks(document, "yaml").into_iter();
        // Some are for Envoy: crowfly-e2e starts one with them. Others are the node agent's: see below.
        let others = ["envoy.yaml", "node.yaml"];
        let is_ours = |text: &String| !others.iter().any(|name| is_named(text, name));
        for text in yaml.filter(is_ours) {
            let file = ConfigFile {
                path: document.into(),
                text: text.clone(),
            };
            let read = Catalog::read(&[file]).and_then(|catalog| translate(&catalog));
            read.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            found += 1;
        }
    }
    assert!(found >= 6, "{found}");
}

/// Every configuration of the node agent is one that `crowfly node` routes.
#[test]
fn configurations_of_the_node_agent_are_valid() {
    let mut texts = blocks(NODE, "yaml");
    for document in DOCUMENTS {
        let yaml = blocks(document, "yaml").into_iter();
        texts.extend(yaml.filter(|text| is_named(text, "node.yaml")));
    }
    assert!(texts.len() >= 3, "{}", texts.len());
    for text in texts {
        let checked = crowfly_cli::node::check_config(NODE.as_ref(), &text);
        checked.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    }
}

/// The bootstrap that the README exports is one.
#[test]
fn the_bootstrap_is_valid() {
    let exported = blocks("README.md", "sh").into_iter().find_map(|text| {
        let (_, after) = text.split_once("GRPC_XDS_BOOTSTRAP_CONFIG='")?;
        Some(after.split_once('\'')?.0.to_owned())
    });
    let bootstrap = Bootstrap::from_json(&exported.expect("a bootstrap")).unwrap();
    assert_eq!(bootstrap.servers[0].authority(), "127.0.0.1:18000");
    assert_eq!(bootstrap.node.id, "web-1");
}

/// Every command line of `crowfly` has the flags that the program has.
#[test]
fn commands_are_valid() {
    let mut found = 0;
    for document in DOCUMENTS.into_iter().chain([NODE]) {
        for text in blocks(document, "sh") {
            for line in text.lines().filter(|line| line.starts_with("crowfly ")) {
                let line = line.split('#').next().unwrap_or_default();
                let words = line.split_whitespace().filter(|word| *word != "&");
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}\n{error}"));
                found += 1;
            }
        }
    }
    assert!(found >= 11, "{found}");
}

/// The program in the README is the one of the example, which is built and run by tests.
#[test]
fn the_program_is_that_of_the_example() {
    let rust = blocks("README.md", "rust");
    let example = read("examples/hello/src/bin/hello-client.rs");
    assert_eq!(rust, [example]);
}

/// The files of the first steps are those of the examples, which tests run.
#[test]
fn the_first_steps_are_those_of_the_examples() {
    for (language, files) in [
        ("yaml", &["mesh.yaml", "agent-mesh.yaml"][..]),
        ("python", &["greet.py"]),
        ("js", &["greet.js"]),
        ("go", &["greet.go"]),
    ] {
        let files = files
            .iter()
            .map(|file| read(&format!("examples/first/{file}")));
        assert_eq!(
            blocks("docs/control.md", language),
            files.collect::<Vec<_>>()
        );
    }
}

/// docs/config.md has every flag of `crowfly control` with its variable, and no other.
#[test]
fn flags_of_the_control_plane_are_documented() {
    let text = read("docs/config.md");
    let (_, section) = text.split_once("\n## Ports and flags\n").unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let (flags, limits) = section.split_once("\n### Limits\n").unwrap();
    let quoted = |text: &str, begin: &str| -> BTreeSet<String> {
        let rows = text.lines().filter(|line| line.starts_with("| `--"));
        let words = rows.flat_map(|row| row.split('`'));
        let words = words.filter(|word| word.starts_with(begin));
        words.map(str::to_owned).collect()
    };
    // The rows of limits have no column for variables, because a rule names them.
    let of_limits = quoted(limits, "--").into_iter().map(|flag| {
        let name = flag.trim_start_matches('-').replace('-', "_");
        format!("CROWFLY_CONTROL_{}", name.to_uppercase())
    });
    let variables: BTreeSet<String> = quoted(flags, "CROWFLY_")
        .into_iter()
        .chain(of_limits)
        .collect();

    let mut command = Cli::command();
    command.build();
    let control = command.find_subcommand("control").unwrap();
    let is_own =
        |of: &&clap::Arg| !of.is_hide_set() && of.get_id() != "help" && of.get_id() != "version";
    let all = || control.get_arguments().filter(is_own);
    let of_program = all().filter_map(|of| Some(format!("--{}", of.get_long()?)));
    assert_eq!(quoted(section, "--"), of_program.collect());
    let of_program = all().filter_map(|of| Some(of.get_env()?.to_str()?.to_owned()));
    assert_eq!(variables, of_program.collect());
}

/// True if a block says in its first line that it is a file of this name.
fn is_named(text: &str, file: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.starts_with('#') && first.ends_with(file)
}

/// The texts of all code blocks in this language, without the indentation of a list.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = read(document);
    let mut lines = text.lines();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let Some((indentation, tag)) = line.split_once("```") else {
            continue;
        };
        let block = lines.by_ref().map_while(|line| {
            let line = line.strip_prefix(indentation).unwrap_or(line);
            (line != "```").then(|| format!("{line}\n"))
        });
        let block: String = block.collect();
        if tag == language {
            blocks.push(block);
        }
    }
    blocks
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}
