//! Tests of `crowfly::Channel` over real sockets, with a control plane and backends on loopback.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod addresses;
mod aggregate_configs;
mod aggregates;
mod authorities;
mod backend;
mod balancing;
mod configs;
mod connectors;
mod contract;
mod custom_policies;
mod deadlines;
mod dns;
mod environment;
mod error_texts;
mod exporter;
mod failures;
mod faults;
mod filters;
mod gates;
mod going_away;
mod hashes;
mod headers;
mod health;
mod idle;
mod keepalive;
mod limits;
mod load_reports;
mod load_under_fire;
mod logs;
mod metrics;
mod not_grpc;
mod outcomes;
mod outliers;
mod policies;
mod proxy;
mod retries;
mod retry_limits;
mod retry_policies;
mod retry_streams;
mod routing;
mod security;
mod sends_away;
mod servers;
mod session_hosts;
mod sessions;
mod spans;
mod state;
mod support;
mod targets;
mod timeouts;
mod tls_backend;
mod unsaid_credentials;
