//! Ranges of addresses, which say what pods run on this node: an xDS endpoint inside that names no node is a local one.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

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
    /// use crowfly_node::cidr::Cidr;
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
pub(crate) fn bits(address: IpAddr) -> u8 {
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
