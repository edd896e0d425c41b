//! A response of the server half, whose resources are those of the snapshot.
//!
//! A resource is encoded when the snapshot is made. A response only refers to it, and copies its
//! bytes once, into the buffer of the connection. So a change that goes to five thousand clients
//! costs each of them the size of the change and a few bytes around it.
//!
//! A response is written in parts, each when the connection has room for it. So a stream holds one
//! part of a large response at a time, and not the whole of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use envoy_types::pb::envoy::service::discovery::v3::ResourceError;
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::all_in_one_response;
use super::wish::Delivery;
use crate::WRAPPER_TYPE_URL;
use crate::session::Protocol;
use crate::snapshot::SnapshotResource;

/// A response of the server half, of either variant of the protocol.
///
/// ```
/// use std::sync::Arc;
/// use crowfly_xds::{Snapshot, Subscription};
/// use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
/// use envoy_types::pb::google::protobuf::Any;
///
/// let mut builder = Snapshot::builder();
/// let url = "type.googleapis.com/x.Y";
/// builder.set("a", Any { type_url: url.into(), value: vec![8, 1] });
/// let mut stream = Subscription::new(Arc::new(builder.build()));
/// stream.handle_request(DiscoveryRequest { type_url: url.into(), ..Default::default() });
///
/// let response = stream.poll_response().unwrap();
/// assert_eq!(response.type_url(), url);
/// let message: DiscoveryResponse = response.to_message().unwrap();
/// assert_eq!(message.resources[0].value, [8, 1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub(super) protocol: Protocol,
    pub(super) version: String,
    pub(super) type_url: String,
    pub(super) nonce: String,
    pub(super) resources: Vec<Sent>,
    /// Names that do not exist; only delta has them.
    pub(super) removed: Vec<Arc<str>>,
    pub(super) errors: Vec<ResourceError>,
}

/// The part of a response that was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pieces: usize,
}

/// A resource in a response.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sent {
    pub(super) name: Arc<str>,
    pub(super) resource: Arc<SnapshotResource>,
    pub(super) form: Form,
    /// The version that the client was sent before, or said it has.
    pub(super) before: Option<Arc<str>>,
}

/// The form in which a resource is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The message alone.
    Bare,
    /// The message in a wrapper that holds its name and version, and its time to live.
    Wrapped { ttl: Option<Duration> },
    /// The wrapper alone, with the version that the client has. It renews the time to live.
    Heartbeat { ttl: Duration, version: Arc<str> },
}

impl Response {
    /// The type that the response is about.
    pub fn type_url(&self) -> &str {
        &self.type_url
    }

    /// The version of the type. In delta it is for people only.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The number that the client's answer repeats.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The name of each resource in the response.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.resources.iter().map(|sent| &sent.name)
    }

    /// Each resource in the response, with the version that the client was sent before. Those that are
    /// only renewed are left out.
    pub fn deliveries(&self) -> impl Iterator<Item = Delivery<'_>> {
        let sent = self.resources.iter().filter(|sent| sent.has_body());
        sent.map(|sent| Delivery {
            name: &sent.name,
            version: &sent.resource.version,
            before: sent.before.as_ref(),
        })
    }

    /// The name of each resource that the response says is gone.
    pub fn removed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.removed.iter()
    }

    /// True if the response has all resources of its type, so that a missing one is deleted.
    pub fn is_whole(&self) -> bool {
        self.protocol == Protocol::StateOfTheWorld && all_in_one_response(&self.type_url)
    }

    /// The response as a message: a `DiscoveryResponse`, or a `DeltaDiscoveryResponse` on a delta
    /// stream.
    ///
    /// # Errors
    /// If it is not a message of this type.
    pub fn to_message<M: Message + Default>(&self) -> Result<M, prost::DecodeError> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        self.encode(&mut bytes);
        M::decode(bytes.as_slice())
    }

    /// The size of the message in bytes.
    pub fn encoded_len(&self) -> usize {
        let mut len = field_len(1, self.version.len());
        len += field_len(4, self.type_url.len());
        len += field_len(5, self.nonce.len());
        for sent in &self.resources {
            len += message_len(2, self.resource_len(sent));
        }
        for name in &self.removed {
            len += message_len(6, name.len());
        }
        for error in &self.errors {
            len += message_len(self.errors_tag(), error.encoded_len());
        }
        len
    }

    /// Writes the message to `buffer`, which must have room for it.
    pub fn encode(&self, buffer: &mut impl BufMut) {
        for piece in 0..self.pieces() {
            self.put_piece(piece, buffer);
        }
    }

    /// Writes the next part of the message, which ends with the first resource that makes it as
    /// large as `size`. Parts that follow one another are the message.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use crowfly_xds::{Snapshot, Subscription, Written};
    /// use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
    ///
    /// let mut stream = Subscription::new(Arc::new(Snapshot::default()));
    /// let request = DiscoveryRequest { type_url: "type.googleapis.com/x.Y".into(), ..Default::default() };
    /// stream.handle_request(request);
    /// let response = stream.poll_response().unwrap();
    ///
    /// let (mut parts, mut whole) = (Vec::new(), Vec::new());
    /// let mut written = Written::default();
    /// while !response.is_written(&written) {
    ///     response.encode_part(&mut written, 1, &mut parts);
    /// }
    /// response.encode(&mut whole);
    /// assert_eq!(parts, whole);
    /// ```
    pub fn encode_part(&self, written: &mut Written, size: usize, buffer: &mut impl BufMut) {
        let room = buffer.remaining_mut();
        while !self.is_written(written) && room - buffer.remaining_mut() < size {
            self.put_piece(written.pieces, buffer);
            written.pieces += 1;
        }
    }

    /// True if the whole message was written.
    pub fn is_written(&self, written: &Written) -> bool {
        written.pieces >= self.pieces()
    }

    /// The number of pieces: the version, each resource, and the rest.
    fn pieces(&self) -> usize {
        self.resources.len() + 2
    }

    fn put_piece(&self, piece: usize, buffer: &mut impl BufMut) {
        match piece.checked_sub(1) {
            None => put_field(1, self.version.as_bytes(), buffer),
            Some(index) => match self.resources.get(index) {
                Some(sent) => self.put_resource(sent, buffer),
                None => self.put_rest(buffer),
            },
        }
    }

    fn put_resource(&self, sent: &Sent, buffer: &mut impl BufMut) {
        put_head(2, self.resource_len(sent), buffer);
        match (self.protocol, &sent.form) {
            (Protocol::StateOfTheWorld, Form::Bare) => put_any(&sent.resource.any, buffer),
            (Protocol::StateOfTheWorld, _) => {
                put_field(1, WRAPPER_TYPE_URL.as_bytes(), buffer);
                put_head(2, sent.wrapper_len(), buffer);
                sent.put_wrapper(buffer);
            }
            (Protocol::Delta, _) => sent.put_wrapper(buffer),
        }
    }

    fn put_rest(&self, buffer: &mut impl BufMut) {
        put_field(4, self.type_url.as_bytes(), buffer);
        put_field(5, self.nonce.as_bytes(), buffer);
        for name in &self.removed {
            put_head(6, name.len(), buffer);
            buffer.put_slice(name.as_bytes());
        }
        for error in &self.errors {
            let bytes = error.encode_to_vec();
            put_head(self.errors_tag(), bytes.len(), buffer);
            buffer.put_slice(&bytes);
        }
    }

    fn errors_tag(&self) -> u32 {
        match self.protocol {
            Protocol::Delta => 9,
            Protocol::StateOfTheWorld => 7,
        }
    }

    fn resource_len(&self, sent: &Sent) -> usize {
        match (self.protocol, &sent.form) {
            (Protocol::Delta, _) => sent.wrapper_len(),
            (Protocol::StateOfTheWorld, Form::Bare) => any_len(&sent.resource.any),
            (Protocol::StateOfTheWorld, _) => {
                field_len(1, WRAPPER_TYPE_URL.len()) + message_len(2, sent.wrapper_len())
            }
        }
    }
}

/// A `Resource` message: version 1, resource 2, name 3, ttl 6.
impl Sent {
    fn version(&self) -> &str {
        match &self.form {
            Form::Heartbeat { version, .. } => version,
            Form::Bare | Form::Wrapped { .. } => &self.resource.version,
        }
    }

    pub(super) fn ttl(&self) -> Option<Duration> {
        match self.form {
            Form::Bare => None,
            Form::Wrapped { ttl } => ttl,
            Form::Heartbeat { ttl, .. } => Some(ttl),
        }
    }

    pub(super) fn has_body(&self) -> bool {
        !matches!(self.form, Form::Heartbeat { .. })
    }

    fn wrapper_len(&self) -> usize {
        let mut len = field_len(1, self.version().len()) + field_len(3, self.name.len());
        if self.has_body() {
            len += message_len(2, any_len(&self.resource.any));
        }
        if let Some(ttl) = self.ttl() {
            len += message_len(6, proto_duration(ttl).encoded_len());
        }
        len
    }

    fn put_wrapper(&self, buffer: &mut impl BufMut) {
        put_field(1, self.version().as_bytes(), buffer);
        if self.has_body() {
            put_head(2, any_len(&self.resource.any), buffer);
            put_any(&self.resource.any, buffer);
        }
        put_field(3, self.name.as_bytes(), buffer);
        if let Some(ttl) = self.ttl() {
            let ttl = proto_duration(ttl);
            put_head(6, ttl.encoded_len(), buffer);
            ttl.encode_raw(buffer);
        }
    }
}

fn proto_duration(duration: Duration) -> envoy_types::pb::google::protobuf::Duration {
    envoy_types::pb::google::protobuf::Duration {
        seconds: duration.as_secs().try_into().unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

/// An `Any` message: type URL 1, value 2.
fn any_len(any: &Any) -> usize {
    field_len(1, any.type_url.len()) + field_len(2, any.value.len())
}

fn put_any(any: &Any, buffer: &mut impl BufMut) {
    put_field(1, any.type_url.as_bytes(), buffer);
    put_field(2, &any.value, buffer);
}

/// The size of a field of text or bytes, which is left out if it is empty.
fn field_len(tag: u32, len: usize) -> usize {
    if len == 0 { 0 } else { message_len(tag, len) }
}

/// The size of a field that is there even if it is empty.
fn message_len(tag: u32, len: usize) -> usize {
    key_len(tag) + encoded_len_varint(len as u64) + len
}

fn put_field(tag: u32, bytes: &[u8], buffer: &mut impl BufMut) {
    if !bytes.is_empty() {
        put_head(tag, bytes.len(), buffer);
        buffer.put_slice(bytes);
    }
}

fn put_head(tag: u32, len: usize, buffer: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(len as u64, buffer);
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::discovery::v3::{
        DeltaDiscoveryResponse, DiscoveryResponse, Resource,
    };
    use proptest::prelude::*;

    use super::*;

    fn form(kind: u8, ttl: Duration) -> Form {
        match kind {
            0 => Form::Bare,
            1 => Form::Wrapped { ttl: None },
            2 => Form::Wrapped { ttl: Some(ttl) },
            _ => Form::Heartbeat {
                ttl,
                version: "seen".into(),
            },
        }
    }

    fn wrapper(sent: &Sent) -> Resource {
        Resource {
            name: sent.name.to_string(),
            version: sent.version().to_owned(),
            resource: sent.has_body().then(|| sent.resource.any.clone()),
            ttl: sent.ttl().map(proto_duration),
            ..Resource::default()
        }
    }

    fn sotw(response: &Response) -> DiscoveryResponse {
        let resource = |sent: &Sent| match sent.form {
            Form::Bare => sent.resource.any.clone(),
            _ => Any {
                type_url: WRAPPER_TYPE_URL.to_owned(),
                value: wrapper(sent).encode_to_vec(),
            },
        };
        DiscoveryResponse {
            version_info: response.version.clone(),
            resources: response.resources.iter().map(resource).collect(),
            type_url: response.type_url.clone(),
            nonce: response.nonce.clone(),
            resource_errors: response.errors.clone(),
            ..DiscoveryResponse::default()
        }
    }

    fn delta(response: &Response) -> DeltaDiscoveryResponse {
        DeltaDiscoveryResponse {
            system_version_info: response.version.clone(),
            resources: response.resources.iter().map(wrapper).collect(),
            type_url: response.type_url.clone(),
            nonce: response.nonce.clone(),
            removed_resources: response.removed.iter().map(ToString::to_string).collect(),
            resource_errors: response.errors.clone(),
            ..DeltaDiscoveryResponse::default()
        }
    }

    proptest! {
        /// The bytes are those that the general encoder makes of the same message.
        #[test]
        fn bytes_are_those_of_the_general_encoder(
            texts in prop::array::uniform4("[a-z]{0,200}"),
            resources in prop::collection::vec(
                ("[a-z]{0,9}", prop::collection::vec(any::<u8>(), 0..300), 0..4u8, 0..9_999u64), 0..5),
            names in prop::collection::vec("[a-z]{0,9}", 0..4),
            part in 1..700_usize,
        ) {
            let [version, type_url, nonce, url] = texts;
            let resources = resources.into_iter().map(|(name, value, kind, ttl)| {
                let any = Any { type_url: url.clone(), value };
                Sent {
                    name: name.as_str().into(),
                    resource: Arc::new(SnapshotResource::new(any, false)),
                    form: form(kind, Duration::from_millis(ttl)),
                    before: None,
                }
            }).collect();
            let mut response = Response {
                protocol: Protocol::StateOfTheWorld,
                version,
                type_url,
                nonce,
                resources,
                removed: Vec::new(),
                errors: names.iter().map(|name| super::super::missing::not_found("t/x", name)).collect(),
            };
            let mut bytes = Vec::new();
            response.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), response.encoded_len());
            prop_assert_eq!(&bytes, &sotw(&response).encode_to_vec());

            response.protocol = Protocol::Delta;
            response.removed = names.iter().map(|name| name.as_str().into()).collect();
            let mut bytes = Vec::new();
            response.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), response.encoded_len());
            prop_assert_eq!(&bytes, &delta(&response).encode_to_vec());

            let (mut parts, mut written) = (Vec::new(), Written::default());
            while !response.is_written(&written) {
                let before = parts.len();
                response.encode_part(&mut written, part, &mut parts);
                let is_last = response.is_written(&written);
                prop_assert!(is_last || parts.len() - before >= part);
            }
            prop_assert_eq!(parts, bytes);
        }
    }
}
