//! The xDS protocol without I/O: client session, server subscription, cache and resolution
