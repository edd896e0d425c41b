//! Header compression (RFC 7541).
