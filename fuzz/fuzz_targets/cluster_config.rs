//! The parser of cluster lists.
#![no_main]

use crowfly_model::grpc::ClusterConfig;
use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parser::<ClusterConfig>(bytes));
