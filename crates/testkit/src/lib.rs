//! Test helpers: resource builders, simulated clock pairs, a scripted management server
