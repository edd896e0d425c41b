//! The bandwidth of one stream in one direction. Messages are large, so that copies and windows
//! matter more than the cost of a call.

use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use crowfly_cli::bench::BenchError;
use crowfly_cli::testing::{Payload, ResponseParameters, StreamingOutputCallRequest};
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use prost::Message;
use tonic::Status;
use tonic::body::Body;

pub(super) use self::Direction::{Download, Upload};
use super::over::Over;

const MESSAGE: usize = 64 * 1024;
const MESSAGES: usize = 4_096;
const OUTPUT: &str = "/grpc.testing.TestService/StreamingOutputCall";
const DUPLEX: &str = "/grpc.testing.TestService/FullDuplexCall";

#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Download,
    Upload,
}

/// Megabytes per second.
pub(super) async fn rate(over: &Over, direction: Direction) -> Result<f64, BenchError> {
    let started = Instant::now();
    let (path, messages) = match direction {
        Download => (OUTPUT, vec![framed(&asking())]),
        Upload => (DUPLEX, vec![framed(&giving()); MESSAGES]),
    };
    let frames = messages
        .into_iter()
        .map(|data| Ok::<_, Status>(Frame::data(data)));
    let body = Body::new(StreamBody::new(stream::iter(frames)));
    let response = over
        .send(path, body)
        .await
        .map_err(|error| error.to_status())?;
    let mut body = response.into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        received += frame?.data_ref().map_or(0, Bytes::len);
    }
    let total = MESSAGE * MESSAGES;
    if matches!(direction, Download) && received < total {
        return Err(Status::data_loss(format!("{received} bytes, not {total}")).into());
    }
    Ok(total as f64 / started.elapsed().as_secs_f64() / 1e6)
}

/// A request whose answers are all messages of a sample.
fn asking() -> StreamingOutputCallRequest {
    let parameters = ResponseParameters {
        size: MESSAGE as i32,
        ..ResponseParameters::default()
    };
    StreamingOutputCallRequest {
        response_parameters: vec![parameters; MESSAGES],
        ..StreamingOutputCallRequest::default()
    }
}

/// A request without answers.
fn giving() -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        payload: Some(Payload {
            body: vec![7; MESSAGE].into(),
            ..Payload::default()
        }),
        ..StreamingOutputCallRequest::default()
    }
}

/// A message as gRPC puts it into DATA.
fn framed(message: &StreamingOutputCallRequest) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.encoded_len() as u32);
    framed.put(message.encode_to_vec().as_slice());
    framed.freeze()
}
