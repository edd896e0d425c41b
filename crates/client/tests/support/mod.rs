//! Reads the next event of a watch. It fails after a time that no passing test needs, so that a
//! test does not hang.

use std::sync::Arc;
use std::time::Duration;

use crowfly_client::{Watch, WatchEvent};
use crowfly_model::ResourceType;
use crowfly_xds::ResourceError;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn next<R: ResourceType>(watch: &mut Watch<R>) -> WatchEvent<R::Parsed> {
    let event = timeout(PATIENCE, watch.next()).await;
    event.expect("an event is due").expect("the client lives")
}

pub(crate) async fn value<R: ResourceType>(watch: &mut Watch<R>) -> Arc<R::Parsed> {
    match next(watch).await {
        WatchEvent::ResourceChanged(Ok(value)) => value,
        other => panic!("expected a resource, got {other:?}"),
    }
}

pub(crate) async fn error<R: ResourceType>(watch: &mut Watch<R>) -> ResourceError {
    match next(watch).await {
        WatchEvent::ResourceChanged(Err(error)) => error,
        other => panic!("expected an error, got {other:?}"),
    }
}

pub(crate) async fn ambient<R: ResourceType>(watch: &mut Watch<R>) -> Option<ResourceError> {
    match next(watch).await {
        WatchEvent::AmbientError(error) => error,
        other => panic!("expected an ambient error or its end, got {other:?}"),
    }
}
