use std::fs;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::*;

/// A certificate that is its own CA, and its key.
fn self_signed() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

struct Fixture {
    dir: TempDir,
    files: TlsFiles,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = |name| dir.path().join(name);
        let files = TlsFiles::default()
            .ca_certificate(path("ca.pem"))
            .identity(path("cert.pem"), path("key.pem"));
        Self { dir, files }
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.dir.path().join(name), content).unwrap();
    }

    fn write_all(&self) {
        let (certificate, key) = self_signed();
        self.write("ca.pem", &certificate);
        self.write("cert.pem", &certificate);
        self.write("key.pem", &key);
    }
}

#[tokio::test]
async fn without_files_there_is_a_reason_and_with_them_no_restart_is_needed() {
    let fixture = Fixture::new();
    let source = TlsSource::start(fixture.files.clone());
    let error = source.config().await.unwrap_err().to_string();
    assert!(error.contains("ca.pem: "), "{error}");
    fixture.write_all();
    source.config().await.unwrap();
}

/// Each of the three files may be caught half-written.
#[tokio::test]
async fn what_was_read_before_outlives_broken_files() {
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        let fixture = Fixture::new();
        fixture.write_all();
        let source = TlsSource::start(fixture.files.clone());
        let before = source.config().await.unwrap();
        fixture.write(name, "-----BEGIN CERTIFICATE-----\nhalf of i");
        let after = source.config().await.unwrap();
        assert!(Arc::ptr_eq(&before, &after), "{name}");
        fixture.write_all();
        let repaired = source.config().await.unwrap();
        assert!(!Arc::ptr_eq(&before, &repaired), "{name}");
    }
}

/// A new certificate with the old key is a rotation half done.
#[test]
fn a_certificate_and_a_key_that_do_not_match_are_an_error() {
    let fixture = Fixture::new();
    fixture.write_all();
    fixture.write("cert.pem", &self_signed().0);
    let error = load(&fixture.files).unwrap_err();
    assert!(matches!(error, TlsError::Identity { .. }), "{error}");
}

#[test]
fn errors_name_the_file() {
    let fixture = Fixture::new();
    fixture.write_all();
    fixture.write("ca.pem", "nothing");
    let error = load(&fixture.files).unwrap_err().to_string();
    assert!(error.contains("ca.pem: no items found"), "{error}");
}

/// gRFC A65: files are read at the interval, connections or not, so what is used should the files be
/// broken later is what they held last.
#[tokio::test(start_paused = true)]
async fn files_are_read_at_the_interval() {
    let fixture = Fixture::new();
    fixture.write_all();
    let interval = Duration::from_secs(60);
    let source = TlsSource::start(fixture.files.clone().refresh_interval(interval));
    let before = source.config().await.unwrap();
    fixture.write_all();
    // The clock is simulated, and stands still while files are read.
    sleep(interval + Duration::from_secs(1)).await;
    fixture.write("ca.pem", "broken");
    let after = source.config().await.unwrap();
    assert!(!Arc::ptr_eq(&before, &after));
}

#[tokio::test]
async fn nothing_is_left_running() {
    let source = TlsSource::start(Fixture::new().files);
    let files = Arc::downgrade(&source.files);
    drop(source);
    while files.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}
