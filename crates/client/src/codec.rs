//! Encoding and decoding of ADS messages.
//!
//! The resources of a response are counted before it is decoded. An empty resource is two bytes on the wire
//! and hundreds in memory, so a few megabytes of them could take gigabytes.

use bytes::Bytes;
use crowfly_xds::Request;
use prost::Message;
use tonic::Status;

/// A flag and the length come before each message (gRPC over HTTP/2).
pub(crate) const HEADER: usize = 5;

/// A request as it goes out, with its header.
pub(crate) fn encode(request: &Request) -> Bytes {
    match request {
        Request::Delta(request) => encode_message(request),
        Request::Sotw(request) => encode_message(request),
    }
}

/// A message as it goes out, with its header.
pub(crate) fn encode_message(message: &impl Message) -> Bytes {
    with_header(&message.encode_to_vec())
}

fn with_header(message: &[u8]) -> Bytes {
    const NOT_COMPRESSED: &[u8] = &[0];
    // The length of a request over 4 GiB does not matter, because any server refuses it.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [NOT_COMPRESSED, &length.to_be_bytes(), message]
        .concat()
        .into()
}

/// Decodes a response. One with many resources that are nearly empty is refused.
pub(crate) fn decode<P: Message + Default>(bytes: &[u8]) -> Result<P, Status> {
    let resources = count_resources(bytes);
    if resources > FEW && bytes.len() / resources < LEAST_BYTES {
        return Err(Status::out_of_range(format!(
            "a response of {} bytes lists {resources} resources: expected at least {LEAST_BYTES} \
             bytes of each",
            bytes.len()
        )));
    }
    P::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// The least size of a resource on average. The type URL of a real resource alone is longer.
const LEAST_BYTES: usize = 16;

/// Responses with up to this many resources are always decoded, because their memory is bounded.
const FEW: usize = 1024;

/// Counts the resources of a response: they are field 2, in state of the world and in delta. The count stops at the
/// first malformed field, because decoding fails there too.
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
