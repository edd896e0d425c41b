//! Tests of certificates in files that are watched. Files may be half written when they are read,
//! and the certificates in use must last.

use std::fs;
use std::io::{self, Write};
use std::sync::Mutex as StdMutex;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tracing_subscriber::fmt;

use super::*;

/// A certificate that is its own CA, and its key.
fn self_signed() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

struct Fixture {
    dir: TempDir,
    files: CertificateFiles,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = |name| dir.path().join(name);
        let files = CertificateFiles::new(RootSource::File(path("ca.pem")))
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
    let source = FileSource::start(fixture.files.clone());
    let error = source.current().await.unwrap_err().to_string();
    assert!(error.contains("ca.pem: "), "{error}");
    fixture.write_all();
    source.current().await.unwrap();
}

/// Each of the three files may be read while it is half written.
#[tokio::test]
async fn what_was_read_before_outlives_broken_files() {
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        let fixture = Fixture::new();
        fixture.write_all();
        let source = FileSource::start(fixture.files.clone());
        let before = source.current().await.unwrap();
        fixture.write(name, "-----BEGIN CERTIFICATE-----\nhalf of i");
        let after = source.current().await.unwrap();
        assert!(Arc::ptr_eq(&before, &after), "{name}");
        fixture.write_all();
        let repaired = source.current().await.unwrap();
        assert!(!Arc::ptr_eq(&before, &repaired), "{name}");
    }
}

/// Broken files are logged, because the certificates in use expire if they are not replaced.
#[tokio::test]
async fn broken_files_and_new_ones_are_told_to_the_log() {
    let log = Log::default();
    let writer = log.clone();
    // With one subscriber alone, the first thread that logs a line decides for `tracing` whether the line is ever
    // logged. That thread may be of another test.
    let _second = tracing::Dispatch::new(fmt().finish());
    let subscriber = fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let fixture = Fixture::new();
    fixture.write_all();
    let source = FileSource::start(fixture.files.clone());
    source.current().await.unwrap();
    source.current().await.unwrap();
    assert_eq!(log.take(), "");

    fixture.write("ca.pem", "broken");
    source.current().await.unwrap();
    let text = log.take();
    for part in ["WARN", "stay in use", "ca.pem: no items found"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }

    fixture.write_all();
    source.current().await.unwrap();
    let text = log.take();
    assert!(
        text.contains("INFO") && text.contains("have changed"),
        "{text}"
    );
}

/// Files that did not change give the same object, so that a caller can keep the settings that it built from
/// it.
#[tokio::test]
async fn files_that_did_not_change_give_the_same_material() {
    let fixture = Fixture::new();
    fixture.write_all();
    let source = FileSource::start(fixture.files.clone());
    let before = source.current().await.unwrap();
    assert!(Arc::ptr_eq(&before, &source.current().await.unwrap()));
    // Another CA alone is a change, and so is another certificate alone.
    fixture.write("ca.pem", &self_signed().0);
    let other_ca = source.current().await.unwrap();
    assert!(!Arc::ptr_eq(&before, &other_ca));
    let (certificate, key) = self_signed();
    fixture.write("cert.pem", &certificate);
    fixture.write("key.pem", &key);
    assert!(!Arc::ptr_eq(&other_ca, &source.current().await.unwrap()));
}

/// A new certificate with the old key is a rotation half done.
#[test]
fn a_certificate_and_a_key_that_do_not_match_are_an_error() {
    let fixture = Fixture::new();
    fixture.write_all();
    fixture.write("cert.pem", &self_signed().0);
    let error = fixture.files.read().unwrap_err();
    assert!(matches!(error, TlsError::Identity { .. }), "{error}");
    assert!(error.to_string().contains("cert.pem: "), "{error}");
}

#[test]
fn errors_name_the_file() {
    let fixture = Fixture::new();
    fixture.write_all();
    fixture.write("ca.pem", "nothing");
    let error = fixture.files.read().unwrap_err().to_string();
    assert!(error.contains("ca.pem: no items found"), "{error}");
}

/// gRFC A65: files are read at the interval, even without connections. If the files are broken later, the
/// content of the last reading is used.
#[tokio::test(start_paused = true)]
async fn files_are_read_at_the_interval() {
    let fixture = Fixture::new();
    fixture.write_all();
    let interval = Duration::from_secs(60);
    let source = FileSource::start(fixture.files.clone().refresh_interval(interval));
    let before = source.current().await.unwrap();
    fixture.write_all();
    // The clock is simulated, and does not advance while files are read.
    sleep(interval + Duration::from_secs(1)).await;
    fixture.write("ca.pem", "broken");
    let after = source.current().await.unwrap();
    assert!(!Arc::ptr_eq(&before, &after));
}

#[tokio::test]
async fn nothing_is_left_running() {
    let source = FileSource::start(Fixture::new().files);
    let state = Arc::downgrade(&source.state);
    drop(source);
    while state.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
}

#[derive(Clone, Default)]
struct Log(Arc<StdMutex<Vec<u8>>>);

impl Log {
    fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
