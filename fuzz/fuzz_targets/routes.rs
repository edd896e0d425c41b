//! The parser of route configurations.
#![no_main]

use crowfly_model::grpc::RouteConfig;
use crowfly_testkit::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::parser::<RouteConfig>(bytes));
