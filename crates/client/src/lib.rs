//! An xDS client: one ADS stream driven over tonic, and typed watches on its resources
