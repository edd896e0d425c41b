//! The end of sockets whose backend is gone.
//!
//! A connected UDP socket would send to a backend that is gone for ever, because nobody answers that it is.
//! So the agent ends such sockets, and programs connect anew. Only sockets that it has routed are ended: they
//! are known by their cookie. A backend that is still told, ready or not, is not gone.

#[cfg(any(target_os = "linux", test))]
pub(crate) mod attempts;
mod diag;
#[cfg(target_os = "linux")]
pub(crate) mod kernel;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;

use crate::maps::{MapError, Maps, Pair};
use crate::metrics::Metrics;
use crate::model::Protocol;
use crate::reconcile::Reconciler;
use crate::services::Services;

/// A connected socket that was routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Routed {
    /// The number that the kernel gives to it alone.
    pub cookie: u64,
    /// The frontend and the backend.
    pub pair: Pair,
    /// The backend.
    pub backend: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
}

/// The sockets of the kernel.
pub trait Sockets: fmt::Debug + Send {
    /// The sockets that were routed and may be ended.
    ///
    /// # Errors
    /// The map cannot be read.
    fn routed(&self) -> Result<Vec<Routed>, MapError>;

    /// Ends sockets, some time from now.
    fn end(&mut self, sockets: Vec<Routed>, metrics: &Metrics);

    /// True while sockets are being ended, and while some are to be tried again.
    fn is_ending(&self) -> bool;

    /// True if sockets could not be ended and are to be tried again: by another look, because their
    /// programs may have connected them elsewhere meanwhile.
    fn must_try_again(&mut self) -> bool;
}

/// The sockets whose backends are gone.
pub(crate) fn gone<M: Maps>(
    sockets: Vec<Routed>,
    services: &Services,
    reconciler: &Reconciler<M>,
) -> Vec<Routed> {
    let mut known: HashMap<Pair, bool> = HashMap::new();
    let mut gone = sockets;
    gone.retain(|socket| {
        let is_gone = || is_gone(socket, services, reconciler);
        *known.entry(socket.pair).or_insert_with(is_gone)
    });
    gone
}

fn is_gone<M: Maps>(socket: &Routed, services: &Services, reconciler: &Reconciler<M>) -> bool {
    let Some(frontend) = reconciler.frontend_of(socket.pair.service) else {
        return true;
    };
    if reconciler
        .pairs(frontend)
        .iter()
        .any(|(pair, _)| *pair == socket.pair)
    {
        return false;
    }
    let Some(selection) = services.selection(frontend) else {
        return true;
    };
    let address = socket.backend.to_string();
    let mut targets = selection.route.targets.iter();
    let mut left_out = selection.left_out.iter();
    let is_told = targets.any(|target| target.address == socket.backend)
        || left_out.any(|left| left.address == address);
    !is_told
}
