//! `crowfly certs`: makes a certificate authority and certificates, so that TLS can be tried without
//! one.
//!
//! The command is for development. A real mesh has an authority that renews certificates. That
//! authority keeps its own key where no developer can read it.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use crate::output;

/// The name of the authority's files, which no certificate may have.
const CA: &str = "ca";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Create a certificate authority and certificates, for trying TLS
///
/// Writes ca.pem and ca.key, and for each NAME a certificate NAME.pem with its key NAME.key. The
/// certificate is for the SPIFFE ID spiffe://TRUST_DOMAIN/NAME, and can be used by servers and
/// clients. Keys are readable by you only. No file is ever overwritten.
///
/// For development only: everyone who has ca.key can pass for any server or client, and nothing renews the
/// certificates.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly certs --out certs hello-server hello-client
  crowfly certs --out certs --trust-domain prod --dns localhost --days 1 payments")]
pub struct CertsArgs {
    /// The names to make certificates for
    #[arg(required = true, value_name = "NAME", value_parser = name)]
    pub names: Vec<String>,

    /// The directory for the files; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// The first part of each SPIFFE ID
    #[arg(long, value_name = "DOMAIN", default_value = "example.org", value_parser = name)]
    pub trust_domain: String,

    /// A host name that every certificate is for, too; may be given several times
    #[arg(long, value_name = "HOST", value_parser = name)]
    pub dns: Vec<String>,

    /// The number of days until the certificates expire
    #[arg(long, value_name = "DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
}

/// Makes the files, and prints what they are.
///
/// # Errors
/// A file exists already, or cannot be written.
pub fn run(args: &CertsArgs) -> Result<(), CertsError> {
    let files = make(args)?;
    write(&args.out, &files)?;
    let directory = fs::canonicalize(&args.out).map_err(|error| failed(&args.out, error))?;
    tell(args, &directory);
    Ok(())
}

/// A file to write.
struct File {
    name: String,
    text: String,
    is_secret: bool,
}

/// The texts of all files.
fn make(args: &CertsArgs) -> Result<Vec<File>, CertsError> {
    let names: BTreeSet<&String> = args.names.iter().collect();
    let mut ca = params(args);
    let subject = format!("Crowfly development CA of {}", args.trust_domain);
    ca.distinguished_name.push(DnType::CommonName, subject);
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let mut files = Vec::from(pair(CA, ca.self_signed(&key)?.pem(), &key));
    let issuer = Issuer::new(ca, key);
    for name in names {
        let mut params = params(args);
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![SanType::URI(spiffe_id(args, name).as_str().try_into()?)];
        for host in &args.dns {
            let host = host.as_str().try_into()?;
            params.subject_alt_names.push(SanType::DnsName(host));
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let key = KeyPair::generate()?;
        files.extend(pair(name, params.signed_by(&key, &issuer)?.pem(), &key));
    }
    Ok(files)
}

/// A certificate that is valid from now on, and from an hour before for clocks that are late.
fn params(args: &CertsArgs) -> CertificateParams {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = (now - Duration::from_secs(60 * 60)).into();
    params.not_after = (now + DAY * args.days).into();
    params
}

fn pair(name: &str, certificate: String, key: &KeyPair) -> [File; 2] {
    let file = |ending: &str, text, is_secret| File {
        name: format!("{name}.{ending}"),
        text,
        is_secret,
    };
    [
        file("pem", certificate, false),
        file("key", key.serialize_pem(), true),
    ]
}

fn spiffe_id(args: &CertsArgs, name: &str) -> String {
    format!("spiffe://{}/{name}", args.trust_domain)
}

/// Writes all files, or none if one of them exists.
fn write(directory: &Path, files: &[File]) -> Result<(), CertsError> {
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let paths: Vec<PathBuf> = files
        .iter()
        .map(|file| directory.join(&file.name))
        .collect();
    if let Some(path) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(CertsError::Exists(path.clone()));
    }
    for (path, file) in paths.iter().zip(files) {
        let mode = if file.is_secret { 0o600 } else { 0o644 };
        OpenOptions::new()
            .write(true)
            // `create_new` fails if another process has made the file meanwhile.
            .create_new(true)
            .mode(mode)
            .open(path)
            .and_then(|mut opened| opened.write_all(file.text.as_bytes()))
            .map_err(|error| failed(path, error))?;
    }
    Ok(())
}

fn failed(path: &Path, source: io::Error) -> CertsError {
    CertsError::Write {
        path: path.to_owned(),
        source,
    }
}

fn tell(args: &CertsArgs, directory: &Path) {
    let shown = |name: &str| directory.join(name).display().to_string();
    let days = args.days;
    output::line(format_args!(
        "{}: a certificate authority for development, for {days} days",
        shown("ca.pem")
    ));
    let names: BTreeSet<&String> = args.names.iter().collect();
    for name in &names {
        let file = shown(&format!("{name}.pem"));
        output::line(format_args!("{file}: {}", spiffe_id(args, name)));
    }
    output::line("Keys are next to them in .key files, which only you can read.");
    for name in names {
        let provider = json!({
            "plugin_name": "file_watcher",
            "config": {
                "certificate_file": shown(&format!("{name}.pem")),
                "private_key_file": shown(&format!("{name}.key")),
                "ca_certificate_file": shown("ca.pem"),
                "refresh_interval": "60s",
            },
        });
        output::line(format_args!(
            "\nThe bootstrap of a gRPC client that is {name}:"
        ));
        output::line(format_args!(
            "  \"certificate_providers\": {}",
            json!({ "mesh": provider })
        ));
    }
}

/// Parses a name that is good in a file name, in a host name and in a SPIFFE ID.
fn name(text: &str) -> Result<String, String> {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: u8| is_good(byte) || b"-._".contains(&byte);
    let has_good_ends =
        text.bytes().next().is_some_and(is_good) && text.bytes().next_back().is_some_and(is_good);
    match text {
        CA => Err("the authority has this name".to_owned()),
        text if has_good_ends && text.bytes().all(is_inner) => Ok(text.to_owned()),
        _ => Err("expected lower-case letters, digits, -, . and _".to_owned()),
    }
}

/// The reasons why there are no certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertsError {
    /// A file is there already.
    #[error("{} exists and is not overwritten; choose another --out", .0.display())]
    Exists(PathBuf),
    /// A certificate cannot be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}
