//! An xDS control plane: configuration files become a snapshot, served over ADS
