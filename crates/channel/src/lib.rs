//! A proxyless service-mesh channel for tonic: xds:/// targets, resolved and balanced in process

pub mod transport;
