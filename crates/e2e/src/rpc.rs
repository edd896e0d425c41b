//! Calls of `grpc.testing.TestService` over any channel, with the name of the backend that
//! answered.
//!
//! The two messages are written by hand. These tests need one field of one of them, and should not
//! depend on the code of the backends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Extensions, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::process::PATIENCE;

const UNARY_CALL: &str = "/grpc.testing.TestService/UnaryCall";
/// The deadline of a call. It is short, so that a call that hangs fails its test.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The number of calls that each backend answered.
pub type Spread = BTreeMap<String, usize>;

/// Makes one `UnaryCall` and returns the name of the backend that answered.
///
/// # Errors
///
/// The status that the call failed with.
pub async fn unary_call<S>(channel: &S) -> Result<String, Status>
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    unary_call_with(channel, Extensions::new()).await
}

/// Makes one `UnaryCall` with request extensions, by which some channels take settings.
///
/// # Errors
///
/// The status that the call failed with.
pub async fn unary_call_with<S>(channel: &S, extensions: Extensions) -> Result<String, Status>
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let response = call(channel, MetadataMap::new(), extensions).await?;
    Ok(response.into_inner().hostname)
}

async fn call<S>(
    channel: &S,
    metadata: MetadataMap,
    extensions: Extensions,
) -> Result<Response<SimpleResponse>, Status>
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| {
        let error: StdError = error.into();
        Status::unknown(format!("the channel is not ready: {error}"))
    })?;
    let mut request = Request::from_parts(metadata, extensions, SimpleRequest {});
    request.set_timeout(TIMEOUT);
    let codec = ProstCodec::<SimpleRequest, SimpleResponse>::default();
    let path = PathAndQuery::from_static(UNARY_CALL);
    client.unary(request, path, codec).await
}

/// A caller that sends back the cookie that it was given, as a browser does.
#[derive(Debug, Default)]
pub struct Session {
    cookie: Option<AsciiMetadataValue>,
}

impl Session {
    /// Makes `count` calls with the cookie, one after the other, and counts the answers of each backend.
    ///
    /// # Panics
    ///
    /// If any of them fails.
    pub async fn spread<S>(&mut self, channel: &S, count: usize) -> Spread
    where
        S: GrpcService<Body> + Clone,
        S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
        <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    {
        let mut spread = Spread::new();
        for _ in 0..count {
            let mut metadata = MetadataMap::new();
            if let Some(cookie) = &self.cookie {
                metadata.insert("cookie", cookie.clone());
            }
            let response = call(channel, metadata, Extensions::new()).await;
            let response = response.unwrap_or_else(|status| panic!("{status:?}"));
            if let Some(set) = response.metadata().get("set-cookie") {
                let set = set.to_str().expect("a cookie in ASCII");
                let pair = set.split(';').next().unwrap_or_default();
                self.cookie = Some(pair.parse().expect("a cookie in ASCII"));
            }
            *spread.entry(response.into_inner().hostname).or_default() += 1;
        }
        spread
    }
}

/// Makes `count` calls, one after the other. Returns how often each outcome came: the name of a
/// backend, or the code of a call that failed.
pub async fn outcomes<S>(channel: &S, count: usize) -> Spread
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut outcomes = Spread::new();
    for _ in 0..count {
        let outcome = unary_call(channel).await;
        let key = outcome.unwrap_or_else(|status| format!("{:?}", status.code()));
        *outcomes.entry(key).or_default() += 1;
    }
    outcomes
}

/// Makes `count` calls, one after the other, and counts the answers of each backend.
///
/// # Panics
///
/// If any of them fails.
pub async fn spread<S>(channel: &S, count: usize) -> Spread
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let mut spread = Spread::new();
    for _ in 0..count {
        let name = unary_call(channel)
            .await
            .unwrap_or_else(|status| panic!("{status:?}"));
        *spread.entry(name).or_default() += 1;
    }
    spread
}

/// Calls until a whole round is answered by exactly the backends in `names`.
///
/// # Panics
///
/// If a call fails, or that does not come to be within [`PATIENCE`].
pub async fn until_served_by<S>(channel: &S, names: &[&str])
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        let spread = spread(channel, names.len() * CALLS_EACH).await;
        if is_served_by(&spread, names) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "expected {names:?} to answer, found {spread:?}"
        );
    }
}

/// The number of calls for each backend. It is so large that none is left out by chance, even if a
/// proxy with several workers loses the order of round robin.
pub const CALLS_EACH: usize = 10;

/// True if exactly the backends in `names` answered.
pub fn is_served_by(spread: &Spread, names: &[&str]) -> bool {
    spread.keys().eq(names.iter().copied())
}

#[derive(Clone, PartialEq, prost::Message)]
struct SimpleRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct SimpleResponse {
    #[prost(string, tag = "6")]
    hostname: String,
}
