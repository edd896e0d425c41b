//! Replays the corpus of the fuzz target `node_resources` without a fuzzer: as it is, cut short,
//! and with bits turned over. Random bytes are tried too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod xds_fuzzing;

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use crowfly_control::{Catalog, ConfigFile, translate};
use crowfly_model::ResourceType;
use crowfly_node::xds::{NodeCluster, NodeEndpoints, NodeListener};
use proptest::prelude::*;
use xds_fuzzing::play;

/// Nothing in the corpus makes the agent panic: neither as it is, nor cut short, nor with a bit turned over.
#[test]
fn the_corpus_does_no_harm() {
    let files: Vec<_> = fs::read_dir(folder()).unwrap().collect();
    assert!(files.len() >= seeds().len());
    for file in files {
        let path = file.unwrap().path();
        let seed = fs::read(&path).unwrap();
        let cut = (0..seed.len()).map(|length| seed[..length].to_vec());
        let bent = (0..seed.len()).map(|at| {
            let mut bent = seed.clone();
            bent[at] ^= 1 << (at % 8);
            bent
        });
        for bytes in [seed.clone()].into_iter().chain(cut).chain(bent) {
            let outcome = catch_unwind(|| play(&bytes));
            assert!(outcome.is_ok(), "{} as {bytes:02x?}", path.display());
        }
    }
}

/// The seeds are the resources of the golden files; `CROWFLY_REGENERATE=1` writes them.
#[test]
fn the_seeds_are_in_the_corpus() {
    for (name, bytes) in seeds() {
        let file = folder().join(name);
        if std::env::var_os("CROWFLY_REGENERATE").is_some() {
            fs::create_dir_all(folder()).unwrap();
            fs::write(&file, &bytes).unwrap();
        }
        let is_same = fs::read(&file).unwrap_or_default() == bytes;
        assert!(is_same, "{}: run with CROWFLY_REGENERATE=1", file.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_by_chance_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        play(&bytes);
    }
}

fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../../fuzz/corpus/node_resources")
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xds");
    let kinds = [
        (0_u8, NodeListener::TYPE_URL, "listener"),
        (1, NodeCluster::TYPE_URL, "cluster"),
        (2, NodeEndpoints::TYPE_URL, "endpoints"),
    ];
    let mut seeds = Vec::new();
    for file in ["endpoints", "frontends", "policies", "refused", "udp"] {
        let text = fs::read_to_string(root.join(format!("{file}.yaml"))).unwrap();
        let text = text.split_once("\n--- table\n").unwrap().0.to_owned();
        let path = "seeds.yaml".into();
        let catalog = Catalog::read(&[ConfigFile { path, text }]).unwrap();
        let snapshot = translate(&catalog).unwrap();
        for (kind, url, noun) in kinds {
            for (name, resource) in snapshot.of(url).unwrap().resources() {
                let bytes = [&[kind], resource.any.value.as_slice()].concat();
                seeds.push((format!("{file}-{noun}-{name}"), bytes));
            }
        }
    }
    seeds
}
