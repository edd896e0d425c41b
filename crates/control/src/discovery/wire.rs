//! A look at the bytes of a request, before they become a message.
//!
//! An element of two bytes becomes a text or a message of up to 170 bytes. So 4 MiB of them would take hundreds of
//! megabytes before the number of names and the size of the node are checked.

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;

use crate::limits::{Beyond, Limit};

/// The most bytes of a node and of the details of errors. An Envoy lists its extensions in its node, in some 100 KB.
const MOST: usize = 512 << 10;

/// The bytes that a field of a node, or a detail of an error, counts besides its own. An Envoy has some 700 extensions.
const FIELD: usize = 64;

/// The most lists of names in a request.
const LISTS: usize = 3;

/// A field of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// An element of a list of names.
    Name,
    Node,
    Error,
    /// A list of names with parameters, which is not served.
    Locator(&'static str),
    /// A field that takes no more memory than its bytes.
    Plain,
}

/// The fields of a request by number. The numbers are those of the API.
pub(super) trait Fields {
    fn field(tag: u32) -> Field;
}

impl Fields for DiscoveryRequest {
    fn field(tag: u32) -> Field {
        match tag {
            2 => Field::Node,
            3 => Field::Name,
            6 => Field::Error,
            7 => Field::Locator("resource_locators"),
            _ => Field::Plain,
        }
    }
}

impl Fields for DeltaDiscoveryRequest {
    fn field(tag: u32) -> Field {
        match tag {
            1 => Field::Node,
            // To subscribe to, to unsubscribe from, and those of `initial_resource_versions`.
            3..=5 => Field::Name,
            7 => Field::Error,
            8 => Field::Locator("resource_locators_subscribe"),
            9 => Field::Locator("resource_locators_unsubscribe"),
            _ => Field::Plain,
        }
    }
}

/// Checks a request of type `R`, which may have at most `names` names in a list. The lists are checked one by one when the
/// request is read, because its node is known then, and the log names it.
///
/// # Errors
/// The message would take too much memory, or has a field that is not served.
pub(super) fn check<R: Fields>(bytes: &[u8], names: usize) -> Result<(), Status> {
    let (mut named, mut counted) = (0_usize, 0_usize);
    for (tag, content) in Contents(bytes) {
        match R::field(tag) {
            Field::Name => named += 1,
            Field::Node => counted += content.len() + FIELD * Contents(content).count(),
            // Only the details of an error are a list. Its message may be long, and is cut later.
            Field::Error => {
                let details = Contents(content).filter(|(tag, _)| *tag == 3);
                counted += details.map(|(_, of)| of.len() + FIELD).sum::<usize>();
            }
            Field::Locator(field) => {
                let message = format!("{field}: not supported, expected names without parameters");
                return Err(Status::invalid_argument(message));
            }
            Field::Plain => {}
        }
    }
    let most = names.saturating_mul(LISTS);
    if named > most {
        return Err(Beyond::too_many_names(most, named).status());
    }
    if counted > MOST {
        let message = format!(
            "expected at most {MOST} bytes of node and error details, of which each field counts {FIELD} more, got {counted}"
        );
        return Err(Beyond::new(Limit::RequestBytes, message).status());
    }
    Ok(())
}

/// The number and the content of each field that is a text, bytes or a message. They end where the bytes are no message,
/// because the decoder knows how to say that.
struct Contents<'a>(&'a [u8]);

impl<'a> Iterator for Contents<'a> {
    type Item = (u32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while self.0.has_remaining() {
            let (tag, wire_type) = decode_key(&mut self.0).ok()?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, tag, &mut self.0, DecodeContext::default()).ok()?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
            let (content, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            return Some((tag, content));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{Extension, Node};
    use envoy_types::pb::google::protobuf::Any;
    use envoy_types::pb::google::rpc;
    use prost::Message;
    use tonic::Code;

    use super::*;

    const NAMES: usize = 100;

    fn checked<R: Fields + Message>(request: &R) -> Result<(), (Code, String)> {
        let outcome = check::<R>(&request.encode_to_vec(), NAMES);
        outcome.map_err(|status| (status.code(), status.message().to_owned()))
    }

    fn names(count: usize) -> Vec<String> {
        vec![String::new(); count]
    }

    /// L-08: names are counted before they become lists, so that two bytes of each do not become thirty.
    #[test]
    fn names_are_counted_before_they_are_read() {
        let delta = |subscribe, unsubscribe, has| DeltaDiscoveryRequest {
            resource_names_subscribe: names(subscribe),
            resource_names_unsubscribe: names(unsubscribe),
            initial_resource_versions: (0..has)
                .map(|n: usize| (n.to_string(), String::new()))
                .collect(),
            ..DeltaDiscoveryRequest::default()
        };
        let told = "limit names: expected at most 300 names of a type on a stream, got 301";
        let refused = Err((Code::ResourceExhausted, told.to_owned()));
        assert_eq!(checked(&delta(NAMES, NAMES, NAMES)), Ok(()));
        assert_eq!(checked(&delta(NAMES, NAMES, NAMES + 1)), refused);
        let sotw = DiscoveryRequest {
            resource_names: names(3 * NAMES + 1),
            ..DiscoveryRequest::default()
        };
        assert_eq!(checked(&sotw), refused);
    }

    /// L-08: the elements of a node and of an error count for more than their two bytes, and a long reason does not.
    #[test]
    fn small_elements_are_counted_before_they_are_read() {
        let node = |extensions| DiscoveryRequest {
            node: Some(Node {
                extensions: vec![Extension::default(); extensions],
                ..Node::default()
            }),
            ..DiscoveryRequest::default()
        };
        let error = |details, reason| DeltaDiscoveryRequest {
            error_detail: Some(rpc::Status {
                message: "x".repeat(reason),
                details: vec![Any::default(); details],
                ..rpc::Status::default()
            }),
            ..DeltaDiscoveryRequest::default()
        };
        let told = "limit request_bytes: expected at most 524288 bytes of node and error details";
        let refused = |outcome: Result<(), (Code, String)>| {
            let (code, message) = outcome.unwrap_err();
            code == Code::ResourceExhausted && message.starts_with(told)
        };
        assert_eq!(checked(&node(5_000)), Ok(()));
        assert!(refused(checked(&node(10_000))));
        assert_eq!(checked(&error(5_000, 4 << 20)), Ok(()));
        assert!(refused(checked(&error(10_000, 0))));
    }

    /// P-34: names with parameters are refused by the name of their field, and not passed over.
    #[test]
    fn locators_are_refused() {
        let sotw = DiscoveryRequest {
            resource_locators: vec![Default::default()],
            ..DiscoveryRequest::default()
        };
        let subscribe = DeltaDiscoveryRequest {
            resource_locators_subscribe: vec![Default::default()],
            ..DeltaDiscoveryRequest::default()
        };
        let unsubscribe = DeltaDiscoveryRequest {
            resource_locators_unsubscribe: vec![Default::default()],
            ..DeltaDiscoveryRequest::default()
        };
        for (outcome, field) in [
            (checked(&sotw), "resource_locators"),
            (checked(&subscribe), "resource_locators_subscribe"),
            (checked(&unsubscribe), "resource_locators_unsubscribe"),
        ] {
            let told = format!("{field}: not supported, expected names without parameters");
            assert_eq!(outcome, Err((Code::InvalidArgument, told)));
        }
    }

    /// Bytes that are no message are left to the decoder, wherever they end.
    #[test]
    fn what_is_cut_off_is_left_to_the_decoder() {
        let request = DiscoveryRequest {
            node: Some(Node::default()),
            resource_names: names(3),
            version_info: "1".to_owned(),
            ..DiscoveryRequest::default()
        };
        let bytes = request.encode_to_vec();
        for end in 0..=bytes.len() {
            assert!(check::<DiscoveryRequest>(&bytes[..end], NAMES).is_ok());
        }
    }
}
