//! The parser of clusters.
#![no_main]

use crowfly_model::grpc::Cluster;
use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parser::<Cluster>(bytes));
