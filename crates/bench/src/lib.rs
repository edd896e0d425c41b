//! Benchmarks against peers
