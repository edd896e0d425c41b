//! The service of this example, which tonic generates from `proto/hello.proto`.

tonic::include_proto!("hello");
