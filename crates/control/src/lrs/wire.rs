//! A look at the bytes of a report, before they become a message.
//!
//! An element of two bytes becomes a message of hundreds of bytes. So 16 MiB of them would take
//! gigabytes before the limits of lists are checked.

use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

/// The most elements of lists in a report. There is room for 20,000 clusters with ten localities.
/// That many take less than 100 MB.
const MAX_ELEMENTS: usize = 250_000;

/// The most bytes of the node and of statistics of single endpoints, which no list of ours counts.
/// An Envoy lists all of its extensions in its node, in some 100 KB.
const MAX_UNCOUNTED: usize = 512 << 10;

/// The messages with lists. The numbers of their fields are those of the API.
#[derive(Clone, Copy)]
enum Kind {
    Request,
    Cluster,
    Locality,
}

/// The contents of a field.
enum Inside {
    /// An element that has lists of its own.
    Message(Kind),
    /// An element without lists.
    Leaf,
    /// A message that is not looked into.
    Uncounted,
    /// A field that takes no more memory than bytes.
    Plain,
}

impl Kind {
    fn field(self, tag: u32) -> Inside {
        match (self, tag) {
            (Self::Request, 2) => Inside::Message(Self::Cluster),
            (Self::Cluster, 2) => Inside::Message(Self::Locality),
            // `dropped_requests` and `load_metric_stats`.
            (Self::Cluster | Self::Locality, 5) => Inside::Leaf,
            // `node` and `upstream_endpoint_stats`.
            (Self::Request, 1) | (Self::Locality, 7) => Inside::Uncounted,
            _ => Inside::Plain,
        }
    }
}

/// Reads a request, unless it would take too much memory. The outer error is a message that is too
/// large.
pub(super) fn decode(bytes: &[u8]) -> Result<Result<LoadStatsRequest, DecodeError>, String> {
    let mut room = Room {
        elements: MAX_ELEMENTS,
        uncounted: MAX_UNCOUNTED,
    };
    match room.take(Kind::Request, bytes) {
        Ok(()) => Ok(LoadStatsRequest::decode(bytes)),
        Err(Problem::Malformed(error)) => Ok(Err(error)),
        Err(Problem::Large(problem)) => Err(problem),
    }
}

/// The room that is left for a request.
struct Room {
    elements: usize,
    uncounted: usize,
}

enum Problem {
    Malformed(DecodeError),
    Large(String),
}

impl From<DecodeError> for Problem {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl Room {
    /// Takes room for the elements in a message.
    fn take(&mut self, kind: Kind, mut bytes: &[u8]) -> Result<(), Problem> {
        while bytes.has_remaining() {
            let (tag, wire_type) = decode_key(&mut bytes)?;
            let inside = kind.field(tag);
            if wire_type != WireType::LengthDelimited || matches!(inside, Inside::Plain) {
                skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
            let Some((content, rest)) = bytes.split_at_checked(length) else {
                // The decoder knows how to say it.
                return Ok(());
            };
            bytes = rest;
            match inside {
                Inside::Message(kind) => {
                    self.take_element()?;
                    self.take(kind, content)?;
                }
                Inside::Leaf => self.take_element()?,
                Inside::Uncounted => self.take_uncounted(length)?,
                Inside::Plain => {}
            }
        }
        Ok(())
    }

    fn take_element(&mut self) -> Result<(), Problem> {
        let problem = || {
            Problem::Large(format!(
                "expected at most {MAX_ELEMENTS} clusters, localities, metrics and categories"
            ))
        };
        self.elements = self.elements.checked_sub(1).ok_or_else(problem)?;
        Ok(())
    }

    fn take_uncounted(&mut self, length: usize) -> Result<(), Problem> {
        let problem = || {
            Problem::Large(format!(
                "expected at most {MAX_UNCOUNTED} bytes of node and upstream_endpoint_stats"
            ))
        };
        // An empty message takes memory as well.
        let length = length.saturating_add(2);
        self.uncounted = self.uncounted.checked_sub(length).ok_or_else(problem)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::Node;
    use envoy_types::pb::envoy::config::endpoint::v3::{
        ClusterStats, UpstreamEndpointStats, UpstreamLocalityStats,
    };

    use super::*;

    fn request(clusters: usize, localities: usize) -> LoadStatsRequest {
        let stats = ClusterStats {
            cluster_name: "shop".to_owned(),
            upstream_locality_stats: vec![UpstreamLocalityStats::default(); localities],
            ..ClusterStats::default()
        };
        LoadStatsRequest {
            node: Some(Node::default()),
            cluster_stats: vec![stats; clusters],
        }
    }

    fn refused(request: &LoadStatsRequest) -> String {
        decode(&request.encode_to_vec()).unwrap_err()
    }

    #[test]
    fn a_large_report_is_read() {
        let request = request(20_000, 10);
        let read = decode(&request.encode_to_vec()).unwrap().unwrap();
        assert!(read == request);
    }

    /// Half a megabyte of empty localities would become a hundred.
    #[test]
    fn elements_are_counted_before_they_are_read() {
        let told = "expected at most 250000 clusters, localities, metrics and categories";
        assert_eq!(refused(&request(1, MAX_ELEMENTS)), told);
        assert!(decode(&request(1, MAX_ELEMENTS - 1).encode_to_vec()).is_ok());
        assert_eq!(refused(&request(MAX_ELEMENTS + 1, 0)), told);
    }

    #[test]
    fn what_is_not_counted_has_few_bytes() {
        let told = "expected at most 524288 bytes of node and upstream_endpoint_stats";
        let mut large = request(1, 1);
        large.node = Some(Node {
            client_features: vec![String::new(); MAX_UNCOUNTED],
            ..Node::default()
        });
        assert_eq!(refused(&large), told);
        let mut large = request(1, 1);
        let endpoints = vec![UpstreamEndpointStats::default(); MAX_UNCOUNTED / 2 + 1];
        large.cluster_stats[0].upstream_locality_stats[0].upstream_endpoint_stats = endpoints;
        assert_eq!(refused(&large), told);
    }

    /// Every beginning of a message is read as the decoder reads it.
    #[test]
    fn what_is_cut_off_is_left_to_the_decoder() {
        let bytes = request(2, 2).encode_to_vec();
        for end in 0..bytes.len() {
            let expected = LoadStatsRequest::decode(&bytes[..end]).is_ok();
            assert_eq!(decode(&bytes[..end]).unwrap().is_ok(), expected, "{end}");
        }
    }
}
