//! The service of this example, as tonic makes it from `proto/hello.proto`.

tonic::include_proto!("hello");
