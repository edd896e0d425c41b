//! Sessions (gRFC A55, A60): the calls of a session go to the host that its cookie names.
//!
//! The model reads and writes the cookie. Here the cookie chooses the cluster, and the host that every pick prefers.
//! The host that an attempt got becomes the cookie of its response.

use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_lb::Call;
use crowfly_model::grpc::filter::{SessionCookie, SessionHost};
use http::{HeaderMap, HeaderValue, header};

use super::Passing;
use crate::transport::Sender;

/// The session of a call.
#[derive(Debug)]
pub(in crate::call) struct Session {
    cookie: Arc<SessionCookie>,
    /// The host that the call asks for.
    host: SessionHost,
    /// The session of a filter before this one, which has a cookie of its own. The last filter decides about picks.
    before: Option<Box<Self>>,
}

impl Session {
    /// Gives a call its session, and sends it to the cluster of its cookie if its route leads there.
    ///
    /// The call keeps the filters of the cluster that its route chose, as in gRPC C-core.
    pub(super) fn begin(cookie: &Arc<SessionCookie>, call: &mut Passing<'_>) {
        if !cookie.applies_to(call.head.uri().path()) {
            return;
        }
        let headers = call.head.headers().get_all(header::COOKIE).iter();
        let host = cookie.host(headers.map(HeaderValue::as_bytes));
        if let Some(clusters) = &call.clusters
            && let Some(pinned) = clusters.find(host.cluster())
        {
            *call.cluster = Arc::clone(pinned);
        }
        call.session = Some(Box::new(Self {
            cookie: Arc::clone(cookie),
            host,
            before: call.session.take(),
        }));
    }

    /// The addresses of the host that every attempt asks for; empty if there is no host yet.
    pub(in crate::call) fn addresses(&self) -> &[SocketAddr] {
        self.host.addresses()
    }

    /// Sets the cookie in the head of a response, if the call came to another host or cluster than it asked for. A
    /// response without messages has only this head.
    pub(in crate::call) fn answered(
        &self,
        cluster: &str,
        token: &Call<Sender>,
        headers: &mut HeaderMap,
    ) {
        if let Some(before) = &self.before {
            before.answered(cluster, token, headers);
        }
        if self.host.is(token.session_addresses(), cluster) {
            return;
        }
        let cookie = self.cookie.set_cookie(token.session_addresses(), cluster);
        // The name and the path are valid, and the value is base64.
        if let Ok(cookie) = HeaderValue::from_maybe_shared(cookie) {
            headers.append(header::SET_COOKIE, cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crowfly_model::grpc::route::{ClusterChoice, Forward};
    use futures_util::FutureExt;
    use http::Request;

    use super::super::{Filter, Filters};
    use super::*;
    use crate::clusters::Clusters;
    use crate::deadline::Deadline;
    use crate::routing::Routed;

    /// The number of allocations for the passage of a call with this cookie through the filters.
    fn allocations(cookie: Option<&'static str>, addresses: &[&str]) -> u64 {
        let filters = Filters(Box::new([Filter::StatefulSession(Arc::new(
            SessionCookie {
                name: "s".to_owned(),
                path: "/".to_owned(),
                ttl: Duration::ZERO,
            },
        ))]));
        let (mut clusters, _ended) = Clusters::new();
        let mut routed = Routed {
            cluster: clusters.lease(&"c".into()).0,
            clusters: None,
            limit: None,
            filters: None,
            forward: Arc::new(Forward::to(ClusterChoice::Cluster("c".to_owned()))),
        };
        let mut head = Request::new(());
        if let Some(cookie) = cookie {
            let cookie = HeaderValue::from_static(cookie);
            head.headers_mut().insert(header::COOKIE, cookie);
        }
        let measured = allocation_counter::measure(|| {
            let passage = filters.run(&mut head, &mut routed, Deadline::default());
            let session = passage.now_or_never().unwrap().unwrap().unwrap();
            let found = session.addresses().iter().map(ToString::to_string);
            // The texts of the comparison are none of the call's.
            allocation_counter::opt_out(|| assert_eq!(found.collect::<Vec<_>>(), addresses));
        });
        measured.count_total
    }

    /// A call pays for its passage and its session, and for the text of its cookie if it has one.
    #[test]
    fn a_session_costs_little() {
        assert_eq!(allocations(None, &[]), 2);
        // 10.0.0.1:80;c
        assert_eq!(
            allocations(Some("s=MTAuMC4wLjE6ODA7Yw=="), &["10.0.0.1:80"]),
            3
        );
    }
}
