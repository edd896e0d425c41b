//! The order in which the addresses of an endpoint are tried.
//!
//! It alternates between IPv4 and IPv6, because one of the families may not work at all.

use std::{collections::HashSet, net::SocketAddr};

/// Each address once, the families in turn, beginning with that of the first address (RFC 8305,
/// section 4). If one family does not work, every second attempt still can.
pub(super) fn race_order(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut seen = HashSet::new();
    let unique = addresses.iter().copied();
    let unique = unique.filter(|address| seen.insert(*address));
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<SocketAddr>, Vec<SocketAddr>) =
        unique.partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::with_capacity(first.len() + second.len());
    while first.len() + second.len() > 0 {
        ordered.extend(first.next());
        ordered.extend(second.next());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S10-07: families take turns, also when one has more addresses; the order inside stays.
    #[test]
    fn families_are_interleaved() {
        let order = |text: &[&str]| -> Vec<String> {
            let addresses: Vec<SocketAddr> = text.iter().map(|a| a.parse().unwrap()).collect();
            race_order(&addresses)
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        let mixed = ["1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1", "[::1]:1", "[::2]:1"];
        let expected = ["1.1.1.1:1", "[::1]:1", "1.1.1.2:1", "[::2]:1", "1.1.1.3:1"];
        assert_eq!(order(&mixed), expected);
        assert_eq!(order(&expected), expected);

        let six_first = ["[::1]:1", "1.1.1.1:1", "1.1.1.2:1", "1.1.1.1:1"];
        assert_eq!(order(&six_first), ["[::1]:1", "1.1.1.1:1", "1.1.1.2:1"]);
        assert!(order(&[]).is_empty());
    }
}
