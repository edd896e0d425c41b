//! The settings of the mapping, which all readings share.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// The namespace of the metadata that the agent reads, unless another one is set.
pub const METADATA_NAMESPACE: &str = "io.cilium.service";

/// The namespace that is read where the first one is missing.
const OTHER_NAMESPACE: &str = "cilium.io";

/// The settings of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The namespaces of metadata. The first one that a resource has is read.
    pub namespaces: Vec<Arc<str>>,
    /// The name of this node, for endpoints inside `pod_cidrs`.
    pub node: Option<Arc<str>>,
    /// The addresses of pods on this node. An endpoint inside is on this node, if it names none.
    pub pod_cidrs: Vec<Cidr>,
}

impl Default for Mapping {
    fn default() -> Self {
        Self::in_namespace(METADATA_NAMESPACE)
    }
}

impl Mapping {
    /// A mapping that reads this namespace of metadata, and `cilium.io` where it is missing.
    pub fn in_namespace(namespace: &str) -> Self {
        let mut namespaces = vec![Arc::from(namespace)];
        if namespace != OTHER_NAMESPACE {
            namespaces.push(OTHER_NAMESPACE.into());
        }
        Self {
            namespaces,
            node: None,
            pod_cidrs: Vec::new(),
        }
    }

    /// This node, if the address is that of a pod on it.
    pub(super) fn node_of(&self, address: IpAddr) -> Option<&Arc<str>> {
        let is_here = self.pod_cidrs.iter().any(|cidr| cidr.contains(address));
        self.node.as_ref().filter(|_| is_here)
    }
}

/// A range of addresses, such as `10.244.1.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    length: u8,
}

impl Cidr {
    /// True if the range has this address.
    ///
    /// ```
    /// use crowfly_node::xds::Cidr;
    ///
    /// let pods: Cidr = "10.244.1.0/24".parse()?;
    /// assert!(pods.contains("10.244.1.255".parse()?));
    /// assert!(!pods.contains("10.244.2.0".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && top(address, self.length) == top(self.address, self.length)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let parse = || {
            let (address, length) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let length: u8 = length.parse().ok()?;
            (length <= bits(address)).then_some(Self { address, length })
        };
        parse().ok_or_else(|| CidrError(text.to_owned()))
    }
}

/// A text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected a range of addresses such as 10.244.1.0/24, got {0:?}")]
pub struct CidrError(String);

/// The length of an address in bits.
pub(super) fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first bits of an address.
fn top(address: IpAddr, length: u8) -> u128 {
    let (value, bits) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    value.checked_shr(bits - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_both_families() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/64", "2001:db8::ffff", true),
            ("2001:db8::/64", "2001:db8:0:1::1", false),
            ("192.0.2.1/32", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.2", false),
        ];
        for (range, address, is_in) in cases {
            let cidr: Cidr = range.parse().unwrap();
            assert_eq!(cidr.to_string(), range);
            assert_eq!(
                cidr.contains(address.parse().unwrap()),
                is_in,
                "{range} {address}"
            );
        }
        for bad in ["10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/", ""] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}
