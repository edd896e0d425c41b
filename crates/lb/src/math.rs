//! The algorithms, each in its own file with its complexity stated. They are apart from the
//! policies, so that each can be tested without endpoints.

mod alias;
mod marks;

pub use alias::AliasTable;
pub(crate) use marks::Marks;
