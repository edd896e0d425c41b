//! Tests of JSON web tokens from a file (gRFC A97). A token is read again before it expires, so the
//! time is given by each test.

use base64::Engine;
use tempfile::TempDir;
use tonic::Code;

use super::*;

/// 2030-01-01
const EXP: u64 = 1_893_456_000;

fn jwt(claims: &str) -> String {
    format!("e30.{}.c2ln", BASE64_URL.encode(claims))
}

fn expiring(exp: u64, id: &str) -> String {
    jwt(&format!(r#"{{"exp": {exp}, "jti": "{id}"}}"#))
}

fn before_exp(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(EXP - seconds)
}

struct Fixture {
    _dir: TempDir,
    path: PathBuf,
    file: JwtFile,
}

impl Fixture {
    fn new(content: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, content).unwrap();
        Self {
            _dir: dir,
            file: JwtFile::new(path.clone()),
            path,
        }
    }

    fn write(&self, content: &str) {
        std::fs::write(&self.path, content).unwrap();
    }

    /// The token as it is sent.
    async fn sent(&self, now: SystemTime) -> String {
        let token = self.file.token_at(now).await.unwrap();
        assert!(token.is_sensitive());
        token.to_str().unwrap().to_owned()
    }
}

/// gRFC A97: a token is read on demand, and kept until a minute before it expires. It expires 30 s
/// before its `exp`.
#[tokio::test]
async fn a_token_is_kept_until_shortly_before_it_expires() {
    let (first, second) = (expiring(EXP, "first"), expiring(EXP + 3600, "second"));
    let fixture = Fixture::new(&format!("{first}\n"));
    assert_eq!(
        fixture.sent(before_exp(3600)).await,
        format!("Bearer {first}")
    );
    fixture.write(&second);
    assert_eq!(
        fixture.sent(before_exp(91)).await,
        format!("Bearer {first}")
    );
    assert_eq!(
        fixture.sent(before_exp(90)).await,
        format!("Bearer {second}")
    );
}

/// gRFC A97: a failed reading matters only once the old token has expired.
#[tokio::test]
async fn an_old_token_outlives_a_broken_file() {
    let first = expiring(EXP, "first");
    let fixture = Fixture::new(&first);
    fixture.sent(before_exp(3600)).await;
    fixture.write("garbage");
    assert_eq!(
        fixture.sent(before_exp(31)).await,
        format!("Bearer {first}")
    );
    let error = fixture.file.token_at(before_exp(30)).await.unwrap_err();
    assert_eq!(Status::from(error).code(), Code::Unauthenticated);
    std::fs::remove_file(&fixture.path).unwrap();
    let error = fixture.file.token_at(before_exp(30)).await.unwrap_err();
    let status = Status::from(error);
    assert_eq!(status.code(), Code::Unavailable);
    let expected = format!("jwt_token_file {}: No such file", fixture.path.display());
    assert!(status.message().starts_with(&expected), "{status:?}");
    // When the file is good again, its token is sent again.
    fixture.write(&first);
    fixture.sent(before_exp(30)).await;
}

#[test]
fn tokens_that_are_none_say_why() {
    let cases = [
        ("".to_owned(), "header.claims.signature"),
        ("a.b".to_owned(), "header.claims.signature"),
        ("a.b.c.d".to_owned(), "header.claims.signature"),
        ("a.*.c".to_owned(), "not base64"),
        (jwt("no"), "not JSON"),
        (jwt("{}"), "no number `exp`"),
        (jwt(r#"{"exp": "1893456000"}"#), "no number `exp`"),
        (jwt(r#"{"exp": -1}"#), "no number `exp`"),
        (jwt(r#"{"exp": 1e300}"#), "no number `exp`"),
        (format!("{}\nx", expiring(EXP, "")), "cannot be sent"),
    ];
    for (text, expected) in cases {
        let error = Jwt::parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn claims_with_and_without_padding() {
    let claims = base64::engine::general_purpose::URL_SAFE.encode(r#"{"exp":1893456000.5}"#);
    assert!(claims.ends_with('='));
    for claims in [claims.as_str(), claims.trim_end_matches('=')] {
        let jwt = Jwt::parse(&format!("a.{claims}.c")).unwrap();
        assert_eq!(jwt.expires, before_exp(30) + Duration::from_millis(500));
    }
}
