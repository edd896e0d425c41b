//! The documents and examples say what the control plane accepts, and all of it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crowfly_control::{Catalog, ConfigFile, translate};
use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_model::{Features, ResourceType, Unsupported};
use crowfly_xds::{Snapshot, SnapshotResource};

/// Documents with configurations in them. The last one is a comment in code.
const DOCUMENTS: [&str; 7] = [
    "README.md",
    "docs/config.md",
    "docs/envoy.md",
    "docs/loads.md",
    "docs/routes.md",
    "examples/hello/README.md",
    "crates/control/src/lib.rs",
];

const EXAMPLES: [&str; 2] = ["examples/routes.yaml", "examples/resilience.yaml"];

#[test]
fn every_configuration_in_the_documents_is_accepted() {
    let mut found = 0;
    for document in DOCUMENTS {
        let text = read(document);
        let text: String = text
            .lines()
            .map(|line| uncommented(line).to_owned() + "\n")
            .collect();
        for block in yaml_blocks(&text) {
            found += 1;
            snapshot(document, &block);
        }
    }
    assert!(found >= 10, "only {found} configurations found");
}

/// gRPC clients read the examples whole: nothing is refused, and nothing is passed over.
#[test]
fn examples_are_read_by_grpc_without_a_word() {
    for example in EXAMPLES {
        let said = unsupported(&snapshot(example, &read(example)));
        assert!(said.is_empty(), "{example}: {said:#?}");
    }
}

/// A key that no document names may as well not exist.
#[test]
fn every_key_is_in_the_documents_and_in_the_examples() {
    let documents: String = ["docs/config.md", "docs/routes.md"].map(read).concat();
    let examples: String = EXAMPLES.map(read).concat();
    let mut keys = 0;
    for (at, in_example) in PLACES {
        let text = format!(
            "services: [{{ name: a, {} }}]",
            at.replace('@', "nonsense: 1")
        );
        let file = ConfigFile {
            path: "a.yaml".into(),
            text,
        };
        let error = Catalog::read(&[file]).unwrap_err().to_string();
        let (_, expected) = error
            .split_once("unknown field, expected one of ")
            .unwrap_or_else(|| panic!("{at}: {error}"));
        for key in expected.trim().split(", ") {
            keys += 1;
            let is_documented = [format!("`{key}`"), format!("{key}:")];
            assert!(
                is_documented.iter().any(|text| documents.contains(text)),
                "{at}: {key} is not in the documents"
            );
            assert!(
                !in_example || examples.contains(&format!("{key}:")),
                "{at}: {key} is not in the examples"
            );
        }
    }
    assert!(keys > 40, "only {keys} keys");
}

/// Every mapping of a service, with `@` in the place of a key; and whether an example has its keys.
const PLACES: [(&str, bool); 27] = [
    ("@", false),
    ("localities: [{ @ }]", false),
    ("endpoints: [{ @ }]", false),
    ("limits: { @ }", true),
    ("outlier_detection: { @ }", true),
    ("outlier_detection: { ejection: { @ } }", true),
    ("outlier_detection: { success_rate: { @ } }", true),
    ("outlier_detection: { failure_percentage: { @ } }", true),
    ("session_affinity: { @ }", true),
    ("session_affinity: { cookie: { @ } }", true),
    ("routes: [{ session_affinity: { @ } }]", true),
    ("load_reports: { @ }", true),
    ("tls: { @ }", true),
    ("tls: { san: [{ @ }] }", false),
    ("policy: { @ }", false),
    ("policy: { least_request: { @ } }", true),
    ("policy: { pick_first: { @ } }", true),
    ("policy: { ring_hash: { @ } }", true),
    ("routes: [{ @ }]", true),
    ("routes: [{ match: { @ } }]", true),
    ("routes: [{ match: { headers: [{ @ }] } }]", true),
    ("routes: [{ match: { headers: [{ range: { @ } }] } }]", true),
    ("retry: { @ }", true),
    ("retry: { backoff: { @ } }", true),
    ("fault: { @ }", true),
    ("fault: { delay: { @ }, abort: {} }", true),
    ("hash: [{ @ }]", true),
];

/// A line without the mark of a comment.
fn uncommented(line: &str) -> &str {
    let Some(comment) = line.strip_prefix("//!") else {
        return line;
    };
    comment.strip_prefix(' ').unwrap_or(comment)
}

/// The blocks of a document that are configurations of the control plane.
fn yaml_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap_or_default());
    let blocks = blocks.map(|block| {
        // A block in a list is indented as a whole.
        let indentation = block.len() - block.trim_start_matches(' ').len();
        let lines = block
            .lines()
            .map(|line| line.get(indentation..).unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    });
    let is_ours = |block: &String| {
        let mut lines = block.lines();
        lines.any(|line| line.starts_with("services:") || line.starts_with("resources:"))
    };
    blocks.filter(is_ours).collect()
}

fn snapshot(path: &str, text: &str) -> Snapshot {
    let file = ConfigFile {
        path: path.into(),
        text: text.to_owned(),
    };
    let snapshot = Catalog::read(&[file]).and_then(|catalog| translate(&catalog));
    snapshot.unwrap_or_else(|errors| panic!("{errors}\nin:\n{text}"))
}

/// All that gRPC would pass over in a snapshot.
fn unsupported(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut said = BTreeSet::new();
    for (url, of) in snapshot.types() {
        for (name, resource) in of.resources() {
            let unsupported = match url {
                Cluster::TYPE_URL => unsupported_in::<Cluster>(resource),
                ClusterConfig::TYPE_URL => unsupported_in::<ClusterConfig>(resource),
                Endpoints::TYPE_URL => unsupported_in::<Endpoints>(resource),
                Listener::TYPE_URL => unsupported_in::<Listener>(resource),
                RouteConfig::TYPE_URL => unsupported_in::<RouteConfig>(resource),
                other => panic!("{other}"),
            };
            said.extend(unsupported.iter().map(|it| format!("{name}: {it}")));
        }
    }
    said
}

fn unsupported_in<R: ResourceType<Context = Features>>(
    resource: &SnapshotResource,
) -> Vec<Unsupported> {
    let parsed = R::parse(&resource.any.value, &Features::ALL).value;
    R::unsupported(&parsed.unwrap())
}

fn read(path: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
