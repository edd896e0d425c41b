//! Sessions (gRFC A55, A60): the calls of a session go to the host that its cookie names.
//!
//! The model reads and writes the cookie. Here a cookie becomes the choice of a cluster and the wish of every pick, and
//! the host that an attempt got becomes the cookie of its response.

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
