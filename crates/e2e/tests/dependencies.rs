//! Rules for the dependencies of the packages in this repository.
//!
//! A dependency is easy to add and hard to notice. It may bring a second version of a crate, a
//! licence that users cannot take, or a compiler that users do not have yet. Cargo resolves by none
//! of these, so this test checks them.
//!
//! The test asks Cargo offline, for this platform and the features that are on by default. Those
//! packages are there, because the tests were built with them. With `CROWFLY_ALL_FEATURES=1` the
//! test asks for all features too, and Cargo may download their packages.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Licences that the users of an Apache-2.0 library can take: permissive ones, without conditions on their own
/// code.
const LICENSES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that the product has in two versions, and why.
const TWO_VERSIONS: &[(&str, &str)] = &[
    ("base64", "serde-saphyr is ahead of tonic"),
    (
        "bitflags",
        "defmt has 1; jiff (by kube) names it, and it is never built",
    ),
    ("getrandom", "ring 0.17 stays with 0.2"),
    ("hashbrown", "kube-runtime 5 stays with 0.16"),
    (
        "syn",
        "derive macros move to 3 one by one; no code of it is linked",
    ),
    ("synstructure", "it goes with syn; no code of it is linked"),
    ("unicode-width", "miette (by prost-reflect) stays with 0.1"),
];

/// The minimum Rust version is a promise to users, and a dependency can break it: 1.88 for libraries,
/// 1.89 for source, control, node and cli.
#[test]
fn no_dependency_needs_a_newer_rust_than_the_crate_that_has_it() {
    let graph = Graph::read(all_features());
    let mut problems = Vec::new();
    for member in graph.published() {
        let ours = member
            .rust_version
            .expect("every package says its minimum Rust version");
        for package in graph.product_of([member]) {
            if package.rust_version > Some(ours) {
                problems.push(format!("{}: {}", member.label(), package.label()));
            }
        }
    }
    assert!(
        problems.is_empty(),
        "newer Rust needed:\n{}",
        problems.join("\n")
    );
}

#[test]
fn every_dependency_of_the_product_has_a_licence_on_the_list() {
    let graph = Graph::read(all_features());
    let product = graph.product_of(graph.published());
    let problems: Vec<_> = product
        .into_iter()
        .filter(|package| !is_allowed(&package.license))
        .map(|package| format!("{}: {:?}", package.label(), package.license))
        .collect();
    assert!(
        problems.is_empty(),
        "licences not on the list:\n{}",
        problems.join("\n")
    );
}

/// Two versions are twice the code, and types that do not fit each other.
#[test]
fn the_product_has_one_version_of_each_crate() {
    // With all features, Cargo names packages that it would never build.
    let graph = Graph::read(false);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in graph.product_of(graph.published()) {
        versions
            .entry(&package.name)
            .or_default()
            .insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let several: BTreeSet<_> = versions.keys().copied().collect();
    let excused: BTreeSet<_> = TWO_VERSIONS.iter().map(|(name, _)| *name).collect();
    let unexcused: Vec<_> = several.difference(&excused).collect();
    assert!(
        unexcused.is_empty(),
        "several versions of {unexcused:?}: {versions:?}"
    );
    let over: Vec<_> = excused.difference(&several).collect();
    assert!(
        over.is_empty(),
        "one version is left of {over:?}: take them off the list"
    );
}

/// The crates with the hard logic. Some have drivers of their own, which depend on tokio, so that the dependencies of a
/// crate do not tell if it is one.
const CORES: &[&str] = &[
    "crowfly-http2",
    "crowfly-lb",
    "crowfly-model",
    "crowfly-names",
    "crowfly-source",
    "crowfly-xds",
];

/// A core is given `now` and a seed, so that tests can repeat what it does.
#[test]
fn cores_ban_clocks_and_global_randomness() {
    let graph = Graph::read(all_features());
    let ban = "#![cfg_attr(not(test), deny(clippy::disallowed_methods))]";
    for name in CORES {
        let lib = graph.member(name).folder.join("src/lib.rs");
        let lib = std::fs::read_to_string(lib).unwrap();
        assert!(
            lib.lines().any(|line| line == ban),
            "{name}: lib.rs has no {ban}"
        );
    }
}

/// A new crate without a runtime is a core, too.
#[test]
fn crates_without_a_runtime_are_cores() {
    let graph = Graph::read(all_features());
    let mut unnamed = graph.published();
    unnamed.retain(|member| {
        !graph.depends_directly(member, "tokio") && !CORES.contains(&member.name.as_str())
    });
    let unnamed: Vec<_> = unnamed.iter().map(|member| &member.name).collect();
    assert!(unnamed.is_empty(), "not among the cores: {unnamed:?}");
}

#[test]
fn licence_expressions_are_read_as_spdx_has_them() {
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND BSD-3-Clause", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0", false),
        ("GPL-3.0 OR (MIT AND ISC)", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-2.0 WITH Classpath-exception", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression), expected, "{expression}");
    }
}

/// True if the expression leaves a choice that is on the list. AND binds closer than OR; a slash is an old way
/// to write OR.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let any = |part: &str| split(part, " AND ").into_iter().all(is_factor_allowed);
    split(&expression, " OR ").into_iter().any(any)
}

fn is_factor_allowed(factor: &str) -> bool {
    let factor = factor.trim();
    match factor
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
    {
        Some(inner) => is_allowed(inner),
        None => LICENSES.contains(&factor),
    }
}

/// Splits where no parenthesis is open.
fn split<'a>(text: &'a str, operator: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && at >= start && text[at..].starts_with(operator) => {
                parts.push(&text[start..at]);
                start = at + operator.len();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The packages that Cargo has resolved.
struct Graph {
    packages: HashMap<String, Package>,
    members: Vec<String>,
}

struct Package {
    name: String,
    version: String,
    license: String,
    rust_version: Option<(u64, u64)>,
    is_published: bool,
    folder: PathBuf,
    /// Packages that are linked into this one or build it; not those of its tests.
    dependencies: Vec<String>,
}

impl Graph {
    fn read(all_features: bool) -> Self {
        let metadata = metadata(all_features);
        let mut edges: HashMap<&str, Vec<String>> = HashMap::new();
        for node in array(&metadata["resolve"]["nodes"]) {
            let used = array(&node["deps"]).iter().filter(|dep| {
                let kinds = array(&dep["dep_kinds"]);
                kinds
                    .iter()
                    .any(|kind| kind["kind"].as_str() != Some("dev"))
            });
            let used = used.map(|dep| text(&dep["pkg"]).to_owned());
            edges.insert(text(&node["id"]), used.collect());
        }
        let package = |package: &Value| {
            let id = text(&package["id"]);
            let manifest = Path::new(text(&package["manifest_path"]));
            let package = Package {
                name: text(&package["name"]).to_owned(),
                version: text(&package["version"]).to_owned(),
                license: package["license"].as_str().unwrap_or_default().to_owned(),
                rust_version: package["rust_version"].as_str().map(minor),
                // An empty list of registries is `publish = false`.
                is_published: package["publish"].is_null(),
                folder: manifest.parent().unwrap().to_owned(),
                dependencies: edges.remove(id).unwrap_or_default(),
            };
            (id.to_owned(), package)
        };
        Self {
            packages: array(&metadata["packages"]).iter().map(package).collect(),
            members: array(&metadata["workspace_members"])
                .iter()
                .map(|id| text(id).to_owned())
                .collect(),
        }
    }

    fn published(&self) -> Vec<&Package> {
        let members = self.members.iter().map(|id| &self.packages[id]);
        members.filter(|member| member.is_published).collect()
    }

    fn member(&self, name: &str) -> &Package {
        let mut members = self.members.iter().map(|id| &self.packages[id]);
        members
            .find(|member| member.name == name)
            .expect("a member of the workspace")
    }

    /// All that `roots` stand on, without themselves.
    fn product_of<'a>(&'a self, roots: impl IntoIterator<Item = &'a Package>) -> Vec<&'a Package> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<_> = roots
            .into_iter()
            .flat_map(|root| &root.dependencies)
            .collect();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(&self.packages[id].dependencies);
            }
        }
        let foreign = seen.into_iter().filter(|id| !self.members.contains(id));
        foreign.map(|id| &self.packages[id]).collect()
    }

    fn depends_directly(&self, package: &Package, name: &str) -> bool {
        let mut dependencies = package.dependencies.iter().map(|id| &self.packages[id]);
        dependencies.any(|dependency| dependency.name == name)
    }
}

impl Package {
    fn label(&self) -> String {
        let rust = match self.rust_version {
            Some((major, minor)) => format!(" (Rust {major}.{minor})"),
            None => String::new(),
        };
        format!("{} {}{rust}", self.name, self.version)
    }
}

fn all_features() -> bool {
    std::env::var_os("CROWFLY_ALL_FEATURES").is_some()
}

fn metadata(all_features: bool) -> Value {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", host.expect("rustc tells its host")])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.arg(if all_features {
        "--all-features"
    } else {
        "--offline"
    });
    let output = cargo.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn minor(version: &str) -> (u64, u64) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string of cargo metadata")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("a list of cargo metadata")
}
