//! Certificate providers: the sources that clusters get certificates from (gRFC A29).
//!
//! A cluster names a provider and no file, so that one control plane can serve clients whose files differ.

use super::TlsFiles;

/// A certificate provider of a bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateProvider {
    /// `file_watcher`: PEM files that are read again while the client runs. At least one of CA and identity is set.
    /// Without a CA file the provider has no CA; the system's CAs are never used instead.
    FileWatcher(TlsFiles),
    /// A plugin that this client does not have. Clusters that name the provider are refused, and others
    /// work.
    Unknown {
        /// The name of the plugin.
        plugin: String,
    },
}

impl CertificateProvider {
    /// False if this client does not have the plugin.
    pub fn is_supported(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}
