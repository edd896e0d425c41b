//! The calls that are lost when a server is killed. A call is lost if the server may have acted on
//! it, because it may not be sent again.
//!
//! Calls that were not sent, or that the server did not act on, are not lost, because they can go
//! to another server.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use bytes::Bytes;
use crowfly::transport::{SendError, SendErrorKind};
use crowfly_cli::bench::BenchError;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use tonic::body::Body;

use super::over::Over;
use super::{Speaker, backend};

pub(super) const ROUNDS: usize = 5;
const CONNECTIONS: usize = 100;
const CONCURRENCY: usize = 64;
const BEFORE_KILL: Duration = Duration::from_millis(200);
const UNARY: &str = "/grpc.testing.TestService/UnaryCall";

/// The calls that were lost, of all calls that failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    lost: usize,
    of: usize,
}

impl Losses {
    fn of(errors: &[SendError]) -> Self {
        let is_lost = |error: &&SendError| {
            !matches!(
                error.kind(),
                SendErrorKind::NeverSent | SendErrorKind::Refused
            )
        };
        Self {
            lost: errors.iter().filter(is_lost).count(),
            of: errors.len(),
        }
    }
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.of += other.of;
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.lost, self.of)
    }
}

/// A call on each of many idle connections, right after their server was killed.
pub(super) async fn idle(speaker: Speaker) -> Result<Losses, BenchError> {
    let (address, mut server) = backend().await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let over = Over::connect(address, speaker).await?;
        call(&over).await.map_err(|error| error.to_status())?;
        connections.push(over);
    }
    server.kill().await?;
    let outcomes = join_all(connections.iter().map(call)).await;
    let errors: Vec<SendError> = outcomes.into_iter().filter_map(Result::err).collect();
    Ok(Losses::of(&errors))
}

/// Makes one call after the other, in many loops over one connection, until the server is killed.
pub(super) async fn busy(speaker: Speaker) -> Result<Losses, BenchError> {
    let (address, mut server) = backend().await?;
    let over = Over::connect(address, speaker).await?;
    let loops = join_all((0..CONCURRENCY).map(|_| async {
        loop {
            if let Err(error) = call(&over).await {
                return error;
            }
        }
    }));
    let kill = async {
        tokio::time::sleep(BEFORE_KILL).await;
        server.kill().await
    };
    let (errors, killed) = tokio::join!(loops, kill);
    killed?;
    Ok(Losses::of(&errors))
}

/// An empty message, and its answer. An answer that is cut off does not fail this call, because the
/// next call fails then.
async fn call(over: &Over) -> Result<(), SendError> {
    let body = Body::new(Full::new(Bytes::from_static(&[0; 5])));
    let response = over.send(UNARY, body).await?;
    let _ = response.into_body().collect().await;
    Ok(())
}
