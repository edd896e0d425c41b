//! JSON web tokens from a file (gRFC A97).
//!
//! The file is read again before its token expires, because another program renews it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tonic::Status;
use tonic::metadata::errors::InvalidMetadataValue;
use tracing::warn;

use super::Token;

/// A token counts as expired this much earlier, because clocks differ and servers take time.
const SKEW: Duration = Duration::from_secs(30);

/// A token that expires within this time is read again, although it is still valid.
const REFRESH: Duration = Duration::from_secs(60);

/// A file that holds a token, and that another program rewrites before the token expires.
///
/// gRFC A97 asks for a backoff between failed readings. There is none here, because a token is read when a
/// stream is opened, and failed streams have that backoff.
#[derive(Debug)]
pub(super) struct JwtFile {
    path: Arc<Path>,
    cached: Mutex<Option<Jwt>>,
}

impl JwtFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path: path.into(),
            cached: Mutex::new(None),
        }
    }

    pub(super) async fn token(&self) -> Result<Token, JwtError> {
        self.token_at(SystemTime::now()).await
    }

    async fn token_at(&self, now: SystemTime) -> Result<Token, JwtError> {
        let mut cached = self.cached.lock().await;
        if let Some(jwt) = &*cached
            && now + REFRESH < jwt.expires
        {
            return Ok(jwt.token.clone());
        }
        match self.read().await {
            Ok(jwt) => Ok(cached.insert(jwt).token.clone()),
            Err(error) => match &*cached {
                Some(jwt) if now < jwt.expires => {
                    warn!(%error, "cannot renew a token for xDS servers: the old one is used on");
                    Ok(jwt.token.clone())
                }
                _ => Err(error),
            },
        }
    }

    async fn read(&self) -> Result<Jwt, JwtError> {
        let path = self.path.clone();
        let text = spawn_blocking(move || std::fs::read_to_string(path)).await;
        let text = text.unwrap_or_else(|error| Err(io::Error::other(error)));
        let text = text.map_err(|source| JwtError::Read {
            path: self.path.to_path_buf(),
            source,
        })?;
        Jwt::parse(text.trim()).map_err(|reason| JwtError::Invalid {
            path: self.path.to_path_buf(),
            reason,
        })
    }
}

/// The reason why there is no token.
#[derive(Debug, Error)]
pub(super) enum JwtError {
    /// The file's content is not a token. Only its expiry is read.
    #[error("jwt_token_file {}: expected a JSON web token: {reason}", path.display())]
    Invalid { path: PathBuf, reason: NotJwt },
    #[error("jwt_token_file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// The codes are those of gRFC A97.
impl From<JwtError> for Status {
    fn from(error: JwtError) -> Self {
        match error {
            JwtError::Invalid { .. } => Self::unauthenticated(error.to_string()),
            JwtError::Read { .. } => Self::unavailable(error.to_string()),
        }
    }
}

#[derive(Debug, Error)]
pub(super) enum NotJwt {
    #[error("its claims are not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("it has no number `exp` among its claims")]
    Exp,
    #[error("its claims are not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has not the form header.claims.signature")]
    Parts,
    #[error("it cannot be sent: {0}")]
    Value(#[from] InvalidMetadataValue),
}

#[derive(Debug)]
struct Jwt {
    token: Token,
    /// The time by which a new token is needed, some time before servers refuse this one.
    expires: SystemTime,
}

impl Jwt {
    /// Reads a token without verifying it, because the server verifies it.
    fn parse(text: &str) -> Result<Self, NotJwt> {
        let mut parts = text.split('.');
        let (Some(_), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotJwt::Parts);
        };
        let claims: serde_json::Value = serde_json::from_slice(&BASE64_URL.decode(claims)?)?;
        let exp = claims.get("exp").and_then(serde_json::Value::as_f64);
        let expires = exp
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .and_then(|since_epoch| SystemTime::UNIX_EPOCH.checked_add(since_epoch))
            .and_then(|exp| exp.checked_sub(SKEW))
            .ok_or(NotJwt::Exp)?;
        let mut token = Token::try_from(format!("Bearer {text}"))?;
        token.set_sensitive(true);
        Ok(Self { token, expires })
    }
}

/// base64url with or without padding. RFC 7515 has none, but some writers add it.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests;
