//! The atomics of this crate: std's, or loom's in tests of interleavings.
//!
//! loom runs a test once for every order in which its threads may see each other's writes. It needs types of its
//! own in place of std's, so it is compiled in by a cfg: `RUSTFLAGS="--cfg crowfly_loom"`. The cfg is ours alone,
//! because under the common `loom` other crates, tokio among them, turn into what does not run outside a model.

#[cfg(all(test, crowfly_loom))]
pub(crate) use loom::sync::atomic;
#[cfg(not(all(test, crowfly_loom)))]
pub(crate) use std::sync::atomic;
