//! The parsers of a client, one for each type URL.
//!
//! A stream has one nonce for a type URL, and the cache has one value for a resource. So a client
//! reads a type URL in one way: by one [`ResourceType`] with one context. A data plane with other
//! parsing rules needs a client of its own.

use std::fmt;
use std::sync::Arc;

use crowfly_model::grpc::{Cluster, ClusterConfig, Endpoints, Listener, RouteConfig};
use crowfly_model::{Decoded, Features, ResourceType};
use thiserror::Error;

use crate::kind::{Erased, Kind};

/// The readings of a client, at most one for each type URL.
///
/// ```
/// use crowfly_model::Features;
/// use crowfly_model::grpc::Cluster;
/// use crowfly_xds::{Kind, Readings};
///
/// let clusters_alone = Readings::default().with::<Cluster>(Features::default());
/// assert!(clusters_alone.check(Kind::of::<Cluster>()).is_ok());
/// assert!(Readings::default().check(Kind::of::<Cluster>()).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    all: Arc<Vec<Reading>>,
}

/// A type, and how its resources are read: its parser with the context bound to it.
#[derive(Clone)]
struct Reading {
    kind: Kind,
    decode: Arc<Decode>,
}

type Decode = dyn Fn(&[u8]) -> Decoded<Erased> + Send + Sync;

impl Readings {
    /// gRPC's readings of all types that a channel watches.
    ///
    /// ```
    /// use crowfly_model::Features;
    /// use crowfly_model::grpc::Endpoints;
    /// use crowfly_xds::{Kind, Readings};
    ///
    /// let readings = Readings::grpc(Features::default());
    /// assert!(readings.check(Kind::of::<Endpoints>()).is_ok());
    /// ```
    pub fn grpc(features: impl Into<Arc<Features>>) -> Self {
        let features = features.into();
        Self::default()
            .with::<Listener>(Arc::clone(&features))
            .with::<RouteConfig>(Arc::clone(&features))
            .with::<Cluster>(Arc::clone(&features))
            .with::<ClusterConfig>(Arc::clone(&features))
            .with::<Endpoints>(features)
    }

    /// Adds the reading `R`, with the context that its parser is given. It replaces any other
    /// reading of the same type URL.
    pub fn with<R: ResourceType>(mut self, context: impl Into<Arc<R::Context>>) -> Self {
        let context = context.into();
        let reading = Reading {
            kind: Kind::of::<R>(),
            decode: Arc::new(move |bytes| decode::<R>(bytes, &context)),
        };
        let all = Arc::make_mut(&mut self.all);
        all.retain(|other| other.kind.type_url != R::TYPE_URL);
        all.reserve_exact(1);
        all.push(reading);
        self
    }

    /// The readings of both `self` and `others`. Where both read a type URL, the one of `others` is
    /// used.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        let replaced = |url: &str| others.of(url).is_some();
        let all = Arc::make_mut(&mut self.all);
        all.retain(|reading| !replaced(reading.kind.type_url));
        all.extend(others.all.iter().cloned());
        self
    }

    /// Checks that this client reads the type URL of `kind` as `kind` does. The error says that the
    /// client reads it in another way, or not at all.
    pub fn check(&self, kind: Kind) -> Result<(), ReadingError> {
        match self.of(kind.type_url) {
            Some(own) if own.kind == kind => Ok(()),
            Some(own) => Err(ReadingError::Other {
                asked: kind,
                own: own.kind,
            }),
            None => Err(ReadingError::Unknown(kind)),
        }
    }

    pub(crate) fn decode(&self, kind: Kind, bytes: &[u8]) -> Decoded<Erased> {
        match self.of(kind.type_url) {
            Some(reading) => (reading.decode)(bytes),
            None => Decoded::undecodable(ReadingError::Unknown(kind)),
        }
    }

    fn of(&self, type_url: &str) -> Option<&Reading> {
        let mut all = self.all.iter();
        all.find(|reading| reading.kind.type_url == type_url)
    }
}

/// Contexts cannot be compared, so two readings are equal only if one is a clone of the other.
impl PartialEq for Reading {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && Arc::ptr_eq(&self.decode, &other.decode)
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.reading())
    }
}

fn decode<R: ResourceType>(bytes: &[u8], context: &R::Context) -> Decoded<Erased> {
    let Decoded { name, value } = R::parse(bytes, context);
    Decoded {
        name,
        value: value.map(|parsed| Arc::new(parsed) as Erased),
    }
}

/// The reason why a client cannot watch a type by a reading.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadingError {
    /// The client reads the type URL in another way.
    #[error(
        "cannot watch {} as {}: this client reads it as {}",
        asked.type_url,
        asked.reading(),
        own.reading()
    )]
    Other {
        /// The reading that was asked for.
        asked: Kind,
        /// The client's own reading.
        own: Kind,
    },
    /// The client does not read the type URL at all.
    #[error("cannot watch {}: this client does not read it", .0.type_url)]
    Unknown(Kind),
}
