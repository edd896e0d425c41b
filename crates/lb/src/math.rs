//! The algorithms, each in its own file with its complexity stated.

mod alias;
mod marks;

pub use alias::AliasTable;
pub(crate) use marks::Marks;
