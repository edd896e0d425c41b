//! Where configuration comes from. Files, for now.

pub(crate) mod file;
mod links;
mod reload;
mod settle;

pub(crate) use file::FileSource;
pub(crate) use reload::Reloader;
