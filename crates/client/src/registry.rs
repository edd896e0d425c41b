//! The list of the clients of this process.
//!
//! Channels to one target share a client, and find it here (gRFC A71). A configuration dump finds all
//! clients here (gRFC A40).

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crowfly_model::bootstrap::Bootstrap;

use crate::client::{Common, Inner, Settings, XdsClient, XdsClientError};

static CLIENTS: LazyLock<Mutex<Vec<Weak<Inner>>>> = LazyLock::new(Mutex::default);

/// Every client of this process that has not ended.
pub(crate) fn all() -> Vec<XdsClient> {
    let alive = clients()
        .iter()
        .filter_map(Weak::upgrade)
        .collect::<Vec<_>>();
    alive.into_iter().map(XdsClient::from_inner).collect()
}

pub(crate) fn insert(client: &XdsClient) {
    let mut clients = clients();
    clients.retain(|client| client.strong_count() > 0);
    clients.push(Arc::downgrade(client.inner()));
}

/// Returns the client for a target and bootstrap, and makes it if there is none.
///
/// The lock is held until the client is made, because two channels that start together must find one client. Clients
/// with equal bootstraps and settings hold one copy of them, because most programs have only one bootstrap.
pub(crate) fn find_or_insert(
    target: &str,
    bootstrap: Arc<Bootstrap>,
    settings: Settings,
    make: impl FnOnce(Arc<Common>) -> Result<XdsClient, XdsClientError>,
) -> Result<XdsClient, XdsClientError> {
    let mut clients = clients();
    clients.retain(|client| client.strong_count() > 0);
    let alive = || clients.iter().filter_map(Weak::upgrade);
    let is_alike = |inner: &Arc<Inner>| inner.common.is_of(&bootstrap, &settings);
    let is_same =
        |inner: &Arc<Inner>| !inner.is_gone() && *inner.target == *target && is_alike(inner);
    if let Some(inner) = alive().find(is_same) {
        return Ok(XdsClient::from_inner(inner));
    }
    let held = alive()
        .find(is_alike)
        .map(|inner| Arc::clone(&inner.common));
    let common = held.unwrap_or_else(|| Arc::new(Common::new(bootstrap, settings)));
    let client = make(common)?;
    clients.push(Arc::downgrade(client.inner()));
    Ok(client)
}

fn clients() -> MutexGuard<'static, Vec<Weak<Inner>>> {
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn equal_bootstraps_are_held_once() {
        let client = |target: &str| {
            let bootstrap = Bootstrap::builder("127.0.0.1:1").unwrap();
            let bootstrap = Arc::new(bootstrap.node_id("held-once").build());
            XdsClient::builder(bootstrap)
                .target(target)
                .shared()
                .unwrap()
        };
        let (one, other) = (client("xds:///one"), client("xds:///other"));
        assert!(!Arc::ptr_eq(one.inner(), other.inner()));
        assert!(Arc::ptr_eq(&one.inner().common, &other.inner().common));
    }
}
