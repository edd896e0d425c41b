//! Tokens of Google's application default credentials (gRFC A27's `google_default`).
//!
//! Google's credentials are behind a feature, because few programs need them and the library is
//! large.

use google_cloud_auth::credentials::{AccessTokenCredentials, Builder};
use tokio::sync::OnceCell;
use tonic::Status;

use super::Token;
use crate::stream::error_chain;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Looks for the credentials at the first call: in the file of a service account or user, then at the
/// machine's metadata server. The library keeps and renews tokens.
#[derive(Debug, Default)]
pub(super) struct Google {
    credentials: OnceCell<AccessTokenCredentials>,
}

impl Google {
    pub(super) async fn token(&self) -> Result<Token, Status> {
        let credentials = self
            .credentials
            .get_or_try_init(|| async { find() })
            .await?;
        let access = credentials.access_token().await.map_err(failed)?;
        let mut token = Token::try_from(format!("Bearer {}", access.token)).map_err(failed)?;
        token.set_sensitive(true);
        Ok(token)
    }
}

fn find() -> Result<AccessTokenCredentials, Status> {
    // The library's own HTTP client uses the process's provider, and panics if there is none.
    crowfly_tls::install_default_provider();
    let builder = Builder::default().with_scopes([SCOPE]);
    builder.build_access_token_credentials().map_err(failed)
}

fn failed(error: impl std::error::Error) -> Status {
    Status::unavailable(format!("google_default: {}", error_chain(&error)))
}
