//! The decoder of the requests of a discovery stream.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};

/// The bytes that a stream reserves for requests. Most are answers to responses, which are smaller. A larger request
/// makes the buffer grow.
const BUFFER: usize = 128;

/// The decoder of requests of type `R`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestDecoder<R>(PhantomData<fn() -> R>);

impl<R> Default for RequestDecoder<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: Message + Default> Decoder for RequestDecoder<R> {
    type Item = R;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<R>, Status> {
        let request = R::decode(buffer);
        request
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        // Nothing is encoded here, so there is nothing to yield.
        BufferSettings::new(BUFFER, BUFFER)
    }
}
