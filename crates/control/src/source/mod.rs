//! Where configuration comes from. Files, for now.

pub(crate) mod file;
mod links;
mod reload;

pub(crate) use file::FileSource;
pub(crate) use reload::Reloader;
