//! The node agent's readings of listeners, clusters and endpoints, and the services that follow from them.
#![no_main]

#[path = "../../crates/node/tests/xds_fuzzing/mod.rs"]
mod xds_fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| xds_fuzzing::play(bytes));
