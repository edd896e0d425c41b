//! Certificates for tests, made new for each test, so that no file is kept that could expire.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// A certificate authority.
///
/// ```
/// use crowfly_testkit::Ca;
///
/// let server = Ca::new().issue(&["spiffe://mesh/payments", "payments.example"]);
/// assert!(server.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
/// ```
#[derive(Debug)]
pub struct Ca {
    /// The CA's own certificate, in PEM.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, both in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key of the certificate.
    pub key: String,
}

impl Ca {
    /// A CA with a name and a key of its own.
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);

        let mut params = CertificateParams::default();
        // Of two CAs with one name, a client could only say that a signature is wrong.
        let name = format!("CA {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// A certificate with these subject alternative names: URIs, IP addresses or DNS names.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.sign(&params(names))
    }

    /// A certificate that was valid long ago.
    pub fn issue_expired(&self, names: &[&str]) -> Issued {
        let mut params = params(names);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names.iter().map(|name| san(name)).collect();
    params
}

fn san(name: &str) -> SanType {
    if name.contains("://") {
        return SanType::URI(name.try_into().unwrap());
    }
    match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into().unwrap()),
    }
}

/// The files of a client or a server: `ca.pem`, `cert.pem` and `key.pem` in one folder.
#[derive(Debug)]
pub struct CertificateFolder(PathBuf);

impl CertificateFolder {
    /// The files in this folder, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Trusts these CAs.
    pub fn trust(&self, authorities: &[&Ca]) {
        let all: String = authorities.iter().map(|ca| ca.pem.as_str()).collect();
        self.replace("ca.pem", &all);
    }

    /// Presents this certificate. For a moment its files do not belong together, as in a real rotation.
    pub fn present(&self, issued: &Issued) {
        self.replace("cert.pem", &issued.certificate);
        self.replace("key.pem", &issued.key);
    }

    /// A reader sees the old file or the new one, and never half of it.
    fn replace(&self, name: &str, content: &str) {
        let fresh = self.path(&format!("{name}.new"));
        std::fs::write(&fresh, content).unwrap();
        std::fs::rename(fresh, self.path(name)).unwrap();
    }
}
