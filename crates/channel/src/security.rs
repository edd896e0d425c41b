//! The transport profile of each cluster: the TLS that it asks for (gRFC A29), or the channel's.
//!
//! A channel has xDS credentials, with plaintext for clusters that ask for no TLS, unless the program has set TLS or
//! plaintext itself. In that case the TLS of clusters is ignored. The ignored setting is logged and shown, because an
//! operator expects a cluster's TLS to have an effect.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use crowfly_model::bootstrap::{CertificateProvider, TlsFiles, is_switched_on};
use crowfly_model::grpc::cluster::{ClusterKind, Sni, TrustedRoots, UpstreamTls};
use crowfly_model::grpc::{Cluster, StringMatcher, StringPattern};
use crowfly_tls::{CertificateFiles, FileSource, RootSource, SanMatcher, ServerCheck};
use rustls_pki_types::ServerName;
use tracing::{info, warn};

use crate::transport::{Profile, TlsClient};

/// The environment variable of gRFC A101 that asks servers for the channel's authority, if no other name
/// applies.
const AUTHORITY_AS_SNI: &str = "GRPC_USE_CHANNEL_AUTHORITY_IF_NO_SNI_APPLICABLE";

/// The side that decides about the security of connections to backends.
#[derive(Debug)]
pub(crate) enum Credentials {
    /// The program has decided for all clusters, for the security that this text names.
    Program(&'static str),
    /// Each cluster decides (gRFC A29's `XdsChannelCredentials`).
    Xds {
        providers: BTreeMap<String, CertificateProvider>,
        /// The name in SNI if no other applies: the authority of the channel, or none.
        fallback_sni: Option<ServerName<'static>>,
    },
}

impl Credentials {
    /// Clusters decide, with the providers of a bootstrap. `authority` is that of the channel.
    pub(crate) fn xds(providers: BTreeMap<String, CertificateProvider>, authority: &str) -> Self {
        let fallback_sni =
            is_switched_on(AUTHORITY_AS_SNI).then(|| crowfly_tls::server_name(authority));
        Self::Xds {
            providers,
            fallback_sni: fallback_sni.and_then(Result::ok),
        }
    }
}

/// The profiles of a channel's clusters.
#[derive(Debug)]
pub(crate) struct Profiles {
    credentials: Credentials,
    /// The profile of clusters that ask for no TLS, or of all clusters if the program decides.
    base: Arc<Profile>,
    clusters: BTreeMap<Arc<str>, Secured>,
    /// The files in use. Clusters with the same files share one reader.
    sources: HashMap<CertificateFiles, Weak<FileSource>>,
}

/// A cluster that asks for TLS.
#[derive(Debug)]
struct Secured {
    asked: Arc<UpstreamTls>,
    /// The profile of endpoints without a host name, or of all if SNI does not depend on it.
    profile: Arc<Profile>,
    /// The profiles of endpoints whose host name is in SNI, while they are in use.
    by_host: HashMap<String, Weak<Profile>>,
}

impl Profiles {
    pub(crate) fn new(base: Profile, credentials: Credentials) -> Self {
        Self {
            credentials,
            base: Arc::new(base),
            clusters: BTreeMap::new(),
            sources: HashMap::new(),
        }
    }

    /// The profile that an endpoint of a leaf cluster is connected by. `host` is the endpoint's host name, which
    /// may have a port.
    pub(crate) fn of(&mut self, cluster: &str, host: Option<&str>) -> Arc<Profile> {
        let Some(secured) = self.clusters.get(cluster) else {
            return Arc::clone(&self.base);
        };
        let by_cluster = matches!(self.credentials, Credentials::Xds { .. });
        let host = host.filter(|_| by_cluster && secured.asked.sni.from_host);
        let Some(host) = host else {
            return Arc::clone(&secured.profile);
        };
        if let Some(known) = secured.by_host.get(host).and_then(Weak::upgrade) {
            return known;
        }
        let asked = Arc::clone(&secured.asked);
        let profile = self.make(&asked, Some(host));
        if let Some(secured) = self.clusters.get_mut(cluster) {
            let weak = Arc::downgrade(&profile);
            secured.by_host.insert(host.to_owned(), weak);
        }
        profile
    }

    /// The security of a cluster as a text, if the cluster asks for TLS.
    pub(crate) fn text(&self, cluster: &str) -> Option<Arc<str>> {
        let asked = &self.clusters.get(cluster)?.asked;
        Some(match &self.credentials {
            Credentials::Program(what) => {
                format!("! not used, the program has set {what} (the cluster asks for {asked})")
                    .into()
            }
            Credentials::Xds { .. } => asked.to_string().into(),
        })
    }

    /// Takes the present form of a cluster. Returns true if the profile of its endpoints is another one.
    ///
    /// Must be called in a tokio runtime.
    pub(crate) fn update(&mut self, name: &Arc<str>, cluster: &Cluster) -> bool {
        let ClusterKind::Leaf(leaf) = &cluster.kind else {
            return false;
        };
        let is_obeyed = matches!(self.credentials, Credentials::Xds { .. });
        let Some(asked) = &leaf.security else {
            if self.clusters.remove(name).is_none() {
                return false;
            }
            info!(cluster = &**name, "the cluster asks for no TLS any more");
            return is_obeyed;
        };
        let known = self.clusters.get(name);
        if known.is_some_and(|known| known.asked == *asked) {
            return false;
        }
        let profile = match &self.credentials {
            Credentials::Program(what) => {
                warn!(
                    cluster = &**name,
                    "the cluster asks for {asked}, but the program has set {what} for all backends: \
                     the cluster's TLS is not used"
                );
                Arc::clone(&self.base)
            }
            Credentials::Xds { .. } => self.make(asked, None),
        };
        let secured = Secured {
            asked: Arc::clone(asked),
            profile,
            by_host: HashMap::new(),
        };
        self.clusters.insert(Arc::clone(name), secured);
        is_obeyed
    }

    /// Forgets clusters that are no longer in use, and files that no cluster uses.
    pub(crate) fn retain(&mut self, in_use: impl Fn(&str) -> bool) {
        if !self.clusters.is_empty() {
            self.clusters.retain(|name, _| in_use(name));
        }
        for secured in self.clusters.values_mut() {
            let profiles = &mut secured.by_host;
            profiles.retain(|_, profile| profile.strong_count() > 0);
        }
        if !self.sources.is_empty() {
            self.sources.retain(|_, source| source.strong_count() > 0);
        }
    }

    /// The profile of a cluster that is obeyed. If the cluster asks for settings that cannot work, connections with the
    /// profile fail.
    fn make(&mut self, asked: &UpstreamTls, host: Option<&str>) -> Arc<Profile> {
        let tls = self.client(asked, host);
        let tls = tls.unwrap_or_else(|why| TlsClient::Impossible(why.into()));
        Arc::new(self.base.secured(tls))
    }

    /// TLS as a cluster asks for it. The error is the reason why that cannot work.
    fn client(&mut self, asked: &UpstreamTls, host: Option<&str>) -> Result<TlsClient, String> {
        let Credentials::Xds {
            providers,
            fallback_sni,
        } = &self.credentials
        else {
            return Err("the program decides".to_owned());
        };
        let name = sni(&asked.sni, host);
        let check = match name {
            Some(name) if asked.sni.validates_san => ServerCheck::DnsName(name.into()),
            _ => ServerCheck::SubjectAltNames(matchers(&asked.san_matchers)),
        };
        let sni = match name {
            Some(name) => {
                let valid = crowfly_tls::server_name(name);
                Some(valid.map_err(|error| format!("SNI: {error}"))?)
            }
            None => fallback_sni.clone(),
        };
        let files = files(asked, providers)?;
        Ok(TlsClient::Files {
            source: self.source(files),
            check,
            sni,
        })
    }

    fn source(&mut self, files: CertificateFiles) -> Arc<FileSource> {
        let known = self.sources.get(&files).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let source = Arc::new(FileSource::start(files.clone()));
            self.sources.insert(files, Arc::downgrade(&source));
            source
        })
    }
}

/// gRFC A101: the host if it is wanted and known, or else the name that the cluster gives. The port of a host
/// is no part of SNI.
fn sni<'a>(asked: &'a Sni, host: Option<&'a str>) -> Option<&'a str> {
    let host = host.filter(|_| asked.from_host).map(crowfly_tls::host);
    host.or(asked.name.as_deref())
}

/// The files that the providers of a cluster name. The error is for a provider that has no such file.
fn files(
    asked: &UpstreamTls,
    providers: &BTreeMap<String, CertificateProvider>,
) -> Result<CertificateFiles, String> {
    let mut files = match &asked.roots {
        TrustedRoots::System => CertificateFiles::new(RootSource::System),
        TrustedRoots::Provider(name) => {
            let found = watched(name, providers)?;
            let ca = found.ca_certificate.clone();
            let ca = ca.ok_or_else(|| without(name, "ca_certificate_file"))?;
            let files = CertificateFiles::new(RootSource::File(ca));
            files.refresh_interval(found.refresh_interval)
        }
    };
    if let Some(name) = &asked.identity {
        let found = watched(name, providers)?;
        let identity = found.identity.as_ref();
        let identity = identity.ok_or_else(|| without(name, "certificate_file"))?;
        let interval = found.refresh_interval.min(files.refresh_interval);
        files = files.identity(&identity.certificate, &identity.private_key);
        files = files.refresh_interval(interval);
    }
    Ok(files)
}

fn watched<'a>(
    name: &str,
    providers: &'a BTreeMap<String, CertificateProvider>,
) -> Result<&'a TlsFiles, String> {
    match providers.get(name) {
        Some(CertificateProvider::FileWatcher(files)) => Ok(files),
        // Clusters that name such a provider are refused, so this is for safety only.
        _ => Err(format!(
            "the bootstrap has no certificate provider {name:?} that works"
        )),
    }
}

fn without(provider: &str, field: &str) -> String {
    format!("certificate provider {provider:?} of the bootstrap has no {field}")
}

fn matchers(all: &[StringMatcher]) -> Arc<[Box<dyn SanMatcher>]> {
    let boxed = |matcher: &StringMatcher| Box::new(Matcher(matcher.clone())) as Box<dyn SanMatcher>;
    all.iter().map(boxed).collect()
}

/// A matcher of the model, for names in certificates.
#[derive(Debug)]
struct Matcher(StringMatcher);

impl SanMatcher for Matcher {
    fn exact(&self) -> Option<&str> {
        match self.0.pattern() {
            StringPattern::Exact(text) => Some(text),
            _ => None,
        }
    }

    fn matches(&self, name: &str) -> bool {
        self.0.matches(name.as_bytes())
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
