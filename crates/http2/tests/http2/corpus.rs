//! The fuzz target without a fuzzer: its corpus is replayed and slightly changed, and random
//! scripts are run. So every test run covers what a fuzzer found.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use proptest::prelude::*;

use crate::fuzzing::play;

/// Nothing in the corpus makes the client panic, spin or wait: neither as it is, nor, if it is a seed, cut
/// short or with a bit turned over.
#[test]
fn the_corpus_does_no_harm() {
    let files: Vec<_> = fs::read_dir(folder()).unwrap().collect();
    assert!(files.len() >= seeds().len());
    for file in files {
        let path = file.unwrap().path();
        let seed = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        for script in variations(&name, &seed) {
            let outcome = catch_unwind(|| play(&script));
            assert!(outcome.is_ok(), "{} as {script:02x?}", path.display());
        }
    }
}

/// The seeds are these; `CROWFLY_REGENERATE=1` writes them. What a fuzzer found is kept beside them.
#[test]
fn the_seeds_are_in_the_corpus() {
    for (name, script) in seeds() {
        let file = folder().join(name);
        if std::env::var_os("CROWFLY_REGENERATE").is_some() {
            fs::create_dir_all(folder()).unwrap();
            fs::write(&file, &script).unwrap();
        }
        let is_same = fs::read(&file).unwrap_or_default() == script;
        assert!(is_same, "{}: run with CROWFLY_REGENERATE=1", file.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scripts_by_chance_do_no_harm(script in prop::collection::vec(any::<u8>(), 0..400)) {
        play(&script);
    }

    /// Frames of known types on streams that are open: luck alone seldom gets that far.
    #[test]
    fn frames_by_chance_do_no_harm(steps in prop::collection::vec(step(), 0..100)) {
        play(&[vec![0xc, 0, 0, 0, 0], steps.concat()].concat());
    }
}

fn step() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![Just(0), Just(1), Just(4), Just(5), Just(8), any::<u8>()];
    let payload = prop_oneof![
        Just(vec![0x88]),
        Just(vec![0, 0, 0, 9]),
        prop::collection::vec(any::<u8>(), 0..16)
    ];
    let frame = (0..10_u8, flags, 0..12_u8, payload).prop_map(|(kind, flags, id, payload)| {
        let step = (payload.len() as u8) << 4 | 11;
        [vec![step, kind, flags, id], payload].concat()
    });
    prop_oneof![
        2 => frame,
        2 => (0..8_u8, 0..6_u8).prop_map(|(step, call)| vec![call << 4 | step]),
        1 => (8..11_u8, 0..16_u8).prop_map(|(step, size)| vec![size << 4 | step]),
    ]
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/http2"
    ))
}

fn variations(name: &str, seed: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![seed.to_vec()];
    // A fuzzer names what it found by its hash, and has bent it already.
    if name.len() == 40 {
        return all;
    }
    for at in 0..seed.len() {
        all.push(seed[..at].to_vec());
        for bit in 0..8 {
            let mut turned = seed.to_vec();
            turned[at] ^= 1 << bit;
            all.push(turned);
        }
    }
    all
}

/// A frame of the server, of at most 15 bytes.
fn says(kind: u8, flags: u8, id: u8, payload: &[u8]) -> Vec<u8> {
    let step = (payload.len() as u8) << 4 | 11;
    [&[step, kind, flags, id], payload].concat()
}

fn seeds() -> [(&'static str, Vec<u8>); 4] {
    let status = |id| says(1, 4, id, &[0x88]);
    let unary = [
        vec![0x0c, 0x00, 0x03],
        status(1),
        says(0, 1, 1, b"data"),
        vec![0x01],
    ];
    let stream = [
        vec![0x0c, 0x00, 0x02, 0x00, 0x12],
        status(3),
        says(0, 8, 3, b"\x02data\0\0"),
        vec![0x11, 0x04],
        says(1, 0, 3, &[0x00, 0x01, b'a']),
        says(9, 4, 3, &[0x01, b'b']),
        says(3, 0, 1, &[0, 0, 0, 8]),
        vec![0x11, 0x15],
    ];
    let windows = [
        vec![0x0c, 0x00, 0x03],
        says(4, 0, 0, &[0, 4, 0, 0, 0, 0]),
        says(8, 0, 1, &[0, 0, 0, 9]),
        says(8, 0, 0, &[0, 0, 0, 9]),
        vec![0x19, 0x02, 0x0a],
        says(6, 0, 0, b"12345678"),
        vec![0x07],
        says(6, 1, 0, b"crowfly!"),
    ];
    let end = [
        vec![0x0c, 0x00, 0x00, 0x08, 0x06],
        says(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
        vec![0x15, 0x0d],
        says(0, 0, 1, b"late"),
    ];
    [
        ("unary", unary.concat()),
        ("streams", stream.concat()),
        ("windows", windows.concat()),
        ("end", end.concat()),
    ]
}
