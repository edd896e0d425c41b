//! The algorithms, each in its own file with its complexity stated.

mod alias;

pub use alias::AliasTable;
