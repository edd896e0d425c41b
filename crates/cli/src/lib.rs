//! The crowfly command: control plane, demo, load generator and backend
