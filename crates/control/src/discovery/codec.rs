//! Messages of a discovery stream: requests are decoded as usual, and responses write the bytes of
//! the snapshot straight into the buffer of the connection.

use std::marker::PhantomData;

use crowfly_xds::Response;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The codec of a stream with requests of type `R`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedCodec<R>(PhantomData<fn() -> R>);

impl<R> Default for SharedCodec<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: Message + Default + 'static> Codec for SharedCodec<R> {
    type Encode = Response;
    type Decode = R;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<R> Encoder for SharedCodec<R> {
    type Item = Response;
    type Error = Status;

    fn encode(&mut self, response: Response, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(response.encoded_len());
        response.encode(buffer);
        Ok(())
    }
}

impl<R: Message + Default> Decoder for SharedCodec<R> {
    type Item = R;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<R>, Status> {
        let request = R::decode(buffer);
        request
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
