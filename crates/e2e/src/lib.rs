//! Whole-product tests against real peers
