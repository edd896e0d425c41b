//! The bytes of keys and values, as `bpf/crowfly.bpf.c` declares them.
//!
//! They are written by hand, field by field, because a `struct` that is read as bytes needs unsafe code.
//! Numbers are of this machine's order, addresses and ports of the network's. An IPv4 address is stored
//! as `::ffff:a.b.c.d`, so that one map serves both families.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::reports::{LabelId, Reported};
use super::{BackendId, Counters, Entry, Generation, Pair, ServiceId, Slot, SlotKey};
use crate::model::Protocol;
use crate::select::{Frontend, Without};
use crate::sockets::Routed;

/// `svc.flags`: a frontend without slots is unreachable.
const UNREACHABLE: u32 = 1;

/// The bytes of a `struct svc_key`.
pub fn frontend(frontend: &Frontend) -> [u8; 20] {
    let mut bytes = address(frontend.address, frontend.port);
    bytes[18] = frontend.protocol.number();
    bytes
}

/// The frontend in a `struct svc_key`; `None` if no program of ours wrote it.
pub fn read_frontend(bytes: &[u8; 20]) -> Option<Frontend> {
    let address = read_address(bytes);
    Some(Frontend {
        address: address.ip(),
        port: address.port(),
        protocol: Protocol::from_number(bytes[18])?,
    })
}

/// The bytes of a `struct backend`.
pub fn backend(backend: SocketAddr) -> [u8; 20] {
    address(backend.ip(), backend.port())
}

/// The address in a `struct backend`.
pub fn read_address(bytes: &[u8; 20]) -> SocketAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[..16]);
    let port = u16::from_be_bytes([bytes[16], bytes[17]]);
    SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)
}

fn address(ip: IpAddr, port: u16) -> [u8; 20] {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..18].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// The bytes of a `struct svc`.
pub fn entry(entry: &Entry) -> [u8; 20] {
    let flags = match entry.without {
        Without::Refused => 0,
        Without::Unreachable => UNREACHABLE,
    };
    let Entry {
        service,
        generation,
        slots,
        affinity,
        ..
    } = *entry;
    words([service.0, generation.0, slots, affinity, flags])
}

/// The entry in a `struct svc`.
pub fn read_entry(bytes: &[u8; 20]) -> Entry {
    let [service, generation, slots, affinity, flags] = read_words(bytes);
    Entry {
        service: ServiceId(service),
        generation: Generation(generation),
        slots,
        affinity,
        without: if flags & UNREACHABLE == 0 {
            Without::Refused
        } else {
            Without::Unreachable
        },
    }
}

/// The bytes of a `struct slot_key`.
pub fn slot_key(key: &SlotKey) -> [u8; 12] {
    words([key.service.0, key.generation.0, key.index])
}

/// The key in a `struct slot_key`.
pub fn read_slot_key(bytes: &[u8; 12]) -> SlotKey {
    let [service, generation, index] = read_words(bytes);
    SlotKey {
        service: ServiceId(service),
        generation: Generation(generation),
        index,
    }
}

/// The bytes of a `struct slot`.
pub fn slot(slot: &Slot) -> [u8; 12] {
    words([slot.first.0, slot.second.0, slot.threshold])
}

/// The slot in a `struct slot`.
pub fn read_slot(bytes: &[u8; 12]) -> Slot {
    let [first, second, threshold] = read_words(bytes);
    Slot {
        first: BackendId(first),
        second: BackendId(second),
        threshold,
    }
}

/// The bytes of a `struct pair`.
pub fn pair(pair: &Pair) -> [u8; 8] {
    words([pair.service.0, pair.backend.0])
}

/// The pair in a `struct pair`.
pub fn read_pair(bytes: &[u8; 8]) -> Pair {
    let [service, backend] = read_words(bytes);
    Pair {
        service: ServiceId(service),
        backend: BackendId(backend),
    }
}

/// The counters in a `struct stats`.
pub fn read_counters(values: &[u64; 4]) -> Counters {
    let [opened, established, failed, closed] = *values;
    Counters {
        opened,
        established,
        failed,
        closed,
    }
}

/// The socket in a `struct routed`; `None` if no program of ours wrote it.
pub fn read_routed(cookie: u64, bytes: &[u8; 28]) -> Option<Routed> {
    let (mut pair, mut address) = ([0; 8], [0; 20]);
    pair.copy_from_slice(&bytes[..8]);
    address[..18].copy_from_slice(&bytes[8..26]);
    Some(Routed {
        cookie,
        pair: read_pair(&pair),
        backend: read_address(&address),
        protocol: Protocol::from_number(bytes[26])?,
    })
}

/// The bytes of a `struct reported`.
pub fn reported(reported: &Reported) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&reported.label.0.to_ne_bytes());
    let counts = [reported.opened, reported.failed, reported.closed];
    for (chunk, count) in bytes[8..].chunks_exact_mut(8).zip(counts) {
        chunk.copy_from_slice(&count.to_ne_bytes());
    }
    bytes
}

/// The counts in a `struct reported`.
pub fn read_reported(bytes: &[u8; 32]) -> Reported {
    let [label, ..]: [u32; 8] = read_words(bytes);
    let mut counts = [0; 4];
    for (count, chunk) in counts.iter_mut().zip(bytes.chunks_exact(8)) {
        *count = u64::from_ne_bytes(chunk.try_into().unwrap_or_default());
    }
    let [_, opened, failed, closed] = counts;
    Reported {
        label: LabelId(label),
        opened,
        failed,
        closed,
    }
}

fn words<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn read_words<const WORDS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = chunk
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        if cfg!(target_endian = "big") {
            *word = word.swap_bytes();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frontends_of_both_families_come_back() {
        for (address, expected) in [
            ("10.96.0.10:80", [0xff, 0xff, 10, 96, 0, 10, 0, 80, 17, 0]),
            ("[2001:db8::1]:443", [0, 0, 0, 0, 0, 1, 1, 187, 17, 0]),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            let of = Frontend {
                address: address.ip(),
                port: address.port(),
                protocol: Protocol::Udp,
            };
            let bytes = frontend(&of);
            assert_eq!(bytes[10..], expected);
            assert_eq!(read_frontend(&bytes), Some(of));
            assert_eq!(read_address(&backend(address)), address);
        }
    }

    #[test]
    fn what_was_reported_comes_back() {
        let of = Reported {
            label: LabelId(7),
            opened: u64::MAX,
            failed: 1,
            closed: 2,
        };
        assert_eq!(read_reported(&reported(&of)), of);
    }

    #[test]
    fn entries_and_slots_come_back() {
        let of = Entry {
            service: ServiceId(1),
            generation: Generation(0x0102_0304),
            slots: 3,
            affinity: 10_800,
            without: Without::Unreachable,
        };
        let bytes = entry(&of);
        assert_eq!(bytes[..4], 1_u32.to_ne_bytes());
        assert_eq!(read_entry(&bytes), of);

        let key = SlotKey {
            service: ServiceId(1),
            generation: Generation(2),
            index: 3,
        };
        assert_eq!(read_slot_key(&slot_key(&key)), key);
        let of = Slot {
            first: BackendId(4),
            second: BackendId(5),
            threshold: u32::MAX,
        };
        assert_eq!(read_slot(&slot(&of)), of);
    }
}
