//! Messages of netlink's `sock_diag`, by which the kernel lists and ends sockets.
//!
//! They are made and read here without I/O, so that tests can check them without root.

use std::net::{IpAddr, SocketAddr};

/// `AF_INET` and `AF_INET6`.
pub(super) const FAMILIES: [u8; 2] = [2, 10];

const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The length of a header of netlink, and of a `struct inet_diag_sockid`.
const HEADER: usize = 16;
const ID: usize = 48;

/// The part of an answer that tells a socket from all others: addresses, ports, device and cookie.
pub(super) type SocketId = [u8; ID];

/// One message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A socket.
    Socket(u8, SocketId),
    /// The end of a list, or the result of a request: 0, or the number of an error.
    End(i32),
}

/// Asks for all sockets of a family and a protocol.
pub(super) fn list(family: u8, protocol: u8) -> Vec<u8> {
    request(BY_FAMILY, REQUEST | DUMP, family, protocol, &[0; ID])
}

/// Asks for the end of a socket.
pub(super) fn destroy(family: u8, protocol: u8, id: &SocketId) -> Vec<u8> {
    request(DESTROY, REQUEST | ACK, family, protocol, id)
}

/// The cookie of a socket.
pub(super) fn cookie(id: &SocketId) -> u64 {
    let word = |at: usize| u64::from(word(id, at));
    word(40) | word(44) << 32
}

/// The address that a socket is connected to. It is all zeros for one that is not connected.
pub(super) fn peer(family: u8, id: &SocketId) -> SocketAddr {
    let port = u16::from_be_bytes([id[2], id[3]]);
    let mut octets = [0; 16];
    octets.copy_from_slice(&id[20..36]);
    let address = match octets {
        [a, b, c, d, ..] if family == FAMILIES[0] => IpAddr::from([a, b, c, d]),
        octets => IpAddr::from(octets).to_canonical(),
    };
    SocketAddr::new(address, port)
}

fn request(kind: u16, flags: u16, family: u8, protocol: u8, id: &SocketId) -> Vec<u8> {
    let length = (HEADER + 8 + ID) as u32;
    let mut bytes = Vec::with_capacity(HEADER + 8 + ID);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // A sequence and the number of this port, which nobody looks at.
    bytes.extend([0; 8]);
    bytes.extend([family, protocol, 0, 0]);
    // Sockets in any state.
    bytes.extend([0xff; 4]);
    bytes.extend(id);
    bytes
}

/// Reads the messages of one datagram.
pub(super) fn read(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while bytes.len() >= HEADER {
        let length = word(bytes, 0) as usize;
        if length < HEADER || length > bytes.len() {
            break;
        }
        let (message, kind) = (&bytes[HEADER..length], word(bytes, 4) as u16);
        match kind {
            BY_FAMILY if message.len() >= 4 + ID => {
                let mut id = [0; ID];
                id.copy_from_slice(&message[4..4 + ID]);
                answers.push(Answer::Socket(message[0], id));
            }
            ERROR if message.len() >= 4 => {
                answers.push(Answer::End(-word(message, 0).cast_signed()));
            }
            DONE => answers.push(Answer::End(0)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_ne_bytes(word.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn answers_are_read_and_bad_ones_left_out() {
        let mut id = [0; ID];
        id[40..44].copy_from_slice(&7_u32.to_ne_bytes());
        id[44..48].copy_from_slice(&1_u32.to_ne_bytes());
        assert_eq!(cookie(&id), 7 + (1 << 32));
        id[2..4].copy_from_slice(&53_u16.to_be_bytes());
        id[20..24].copy_from_slice(&[10, 0, 0, 1]);
        assert_eq!(peer(2, &id), "10.0.0.1:53".parse().unwrap());
        let mut mapped = id;
        mapped[20..36].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets());
        assert_eq!(peer(10, &mapped), "10.0.0.1:53".parse().unwrap());
        assert_eq!(peer(10, &[0; ID]), "[::]:0".parse().unwrap());
        // An answer has the shape of a request, but for four bytes.
        let mut answer = list(2, 17)[..HEADER].to_vec();
        answer.extend([2, 1, 0, 0]);
        answer.extend(id);
        answer.extend([0; 20]);
        let length = (answer.len() as u32).to_ne_bytes();
        answer[..4].copy_from_slice(&length);
        let mut end = vec![0; HEADER + 4];
        end[..4].copy_from_slice(&20_u32.to_ne_bytes());
        end[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        end[HEADER..].copy_from_slice(&(-2_i32).to_ne_bytes());
        let both = [answer.clone(), end].concat();
        assert_eq!(read(&both), [Answer::Socket(2, id), Answer::End(2)]);
        assert!(read(&answer[..answer.len() - 1]).is_empty());
        assert!(read(&[0; 64]).is_empty(), "no endless loop");
        assert_eq!(destroy(10, 6, &id).len(), 72);
    }
}
