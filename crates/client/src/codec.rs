//! How ADS messages are written and read.
//!
//! Buffers are small at first: a stream lives as long as its client, is idle most of the time, and
//! there may be a thousand of them. And a response is looked at before it is decoded: an empty
//! resource is two bytes on the wire and hundreds in memory, so a few megabytes of them could take
//! gigabytes.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Protobuf for requests `Q` and responses `P`.
pub(crate) struct AdsCodec<Q, P>(PhantomData<(Q, P)>);

impl<Q, P> AdsCodec<Q, P> {
    const BUFFER: usize = 256;
    /// tonic's default: how much is gathered before it is handed on.
    const YIELD_THRESHOLD: usize = 32 * 1024;

    fn buffers() -> BufferSettings {
        BufferSettings::new(Self::BUFFER, Self::YIELD_THRESHOLD)
    }
}

impl<Q, P> Default for AdsCodec<Q, P> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q, P> Codec for AdsCodec<Q, P>
where
    Q: Message + 'static,
    P: Message + Default + 'static,
{
    type Encode = Q;
    type Decode = P;
    type Encoder = ProstEncoder<Q>;
    type Decoder = CheckedDecoder<P>;

    fn encoder(&mut self) -> ProstEncoder<Q> {
        ProstCodec::<Q, P>::raw_encoder(Self::buffers())
    }

    fn decoder(&mut self) -> CheckedDecoder<P> {
        CheckedDecoder(ProstCodec::<Q, P>::raw_decoder(Self::buffers()))
    }
}

/// Refuses a response of many resources with nothing in them before it is decoded.
pub(crate) struct CheckedDecoder<P>(ProstDecoder<P>);

impl<P: Message + Default + 'static> Decoder for CheckedDecoder<P> {
    type Item = P;
    type Error = Status;

    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<P>, Status> {
        let bytes = src.chunk();
        let resources = count_resources(bytes);
        if resources > FEW && bytes.len() / resources < LEAST_BYTES {
            return Err(Status::out_of_range(format!(
                "a response of {} bytes lists {resources} resources: expected at least \
                 {LEAST_BYTES} bytes of each",
                bytes.len()
            )));
        }
        self.0.decode(src)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// The name of its type alone is longer, where it has one.
const LEAST_BYTES: usize = 16;

/// As many do no harm, whatever they are.
const FEW: usize = 1024;

/// How many resources a response has: they are field 2, in state of the world and in delta. Counting
/// ends where the message makes no sense, which decoding will find, too.
fn count_resources(mut bytes: &[u8]) -> usize {
    const RESOURCES: u64 = 2;
    let mut count = 0;
    while let Some(tag) = varint(&mut bytes) {
        let skipped = match tag & 7 {
            0 => varint(&mut bytes).map(|_| ()),
            1 => skip(&mut bytes, 8),
            2 => {
                count += usize::from(tag >> 3 == RESOURCES);
                let length = varint(&mut bytes);
                length.and_then(|length| skip(&mut bytes, length))
            }
            5 => skip(&mut bytes, 4),
            _ => None,
        };
        if skipped.is_none() {
            break;
        }
    }
    count
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn skip(bytes: &mut &[u8], length: u64) -> Option<()> {
    let length = usize::try_from(length).ok()?;
    *bytes = bytes.get(length..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::discovery::v3::{
        DeltaDiscoveryResponse, DiscoveryResponse, Resource,
    };
    use envoy_types::pb::google::protobuf::Any;

    use super::*;

    #[test]
    fn resources_are_counted_without_decoding_them() {
        let any = Any {
            type_url: "type.googleapis.com/x".to_owned(),
            value: vec![0xff; 300],
        };
        let sotw = DiscoveryResponse {
            version_info: "v1".to_owned(),
            resources: vec![any.clone(); 70],
            nonce: "n1".to_owned(),
            ..DiscoveryResponse::default()
        };
        assert_eq!(count_resources(&sotw.encode_to_vec()), 70);
        let resource = Resource {
            name: "a".to_owned(),
            resource: Some(any),
            ..Resource::default()
        };
        let delta = DeltaDiscoveryResponse {
            system_version_info: "v1".to_owned(),
            resources: vec![resource, Resource::default()],
            removed_resources: vec!["b".to_owned(); 3],
            ..DeltaDiscoveryResponse::default()
        };
        assert_eq!(count_resources(&delta.encode_to_vec()), 2);
    }

    #[test]
    fn nonsense_ends_the_count() {
        assert_eq!(count_resources(&[]), 0);
        assert_eq!(count_resources(&[0x12, 0x00, 0x12]), 2);
        assert_eq!(count_resources(&[0x12, 0x05, 0x00]), 1);
        assert_eq!(count_resources(&[0xff; 20]), 0);
        assert_eq!(count_resources(&[0x0b, 0x12, 0x00]), 0);
    }
}
