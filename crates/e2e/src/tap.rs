//! A relay between clients and a server, which keeps all that the server says.
//!
//! The relay keeps the bytes on the wire, because a server's own account could hide that it sent
//! something again. gRPC does not compress, so the names of resources stand in the bytes as they
//! are.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A relay on loopback. It lives as long as the process.
#[derive(Debug)]
pub struct Tap {
    /// The address for clients.
    pub address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// The bytes from the server, over all connections.
    heard: Vec<u8>,
    /// The connections of clients. Those that have ended stay here.
    clients: Vec<TcpStream>,
}

impl Tap {
    /// A relay to `server`.
    ///
    /// # Panics
    ///
    /// If there is no port for it.
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        let heard = Vec::new();
        let clients = Vec::new();
        let shared = Arc::new(Mutex::new(Shared {
            server,
            heard,
            clients,
        }));
        let of_relays = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                relay(client, &of_relays);
            }
        });
        Self { address, shared }
    }

    /// Leads new connections to `server` from now on.
    pub fn lead_to(&self, server: SocketAddr) {
        lock(&self.shared).server = server;
    }

    /// Ends all connections. New ones are relayed.
    pub fn cut(&self) {
        for client in lock(&self.shared).clients.drain(..) {
            // It fails only if the connection is gone.
            drop(client.shutdown(Shutdown::Both));
        }
    }

    /// Forgets what was heard.
    pub fn forget(&self) {
        lock(&self.shared).heard.clear();
    }

    /// The number of times that the server said `text`.
    pub fn count(&self, text: &str) -> usize {
        let shared = lock(&self.shared);
        let windows = shared.heard.windows(text.len());
        windows.filter(|window| *window == text.as_bytes()).count()
    }

    /// The number of bytes that the server said.
    pub fn bytes(&self) -> usize {
        lock(&self.shared).heard.len()
    }
}

/// Connects a client with the server. A client of a server that is gone is closed.
fn relay(client: TcpStream, shared: &Arc<Mutex<Shared>>) {
    let address = lock(shared).server;
    let Ok(server) = TcpStream::connect(address) else {
        return;
    };
    let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    if let Ok(client) = client.try_clone() {
        lock(shared).clients.push(client);
    }
    let shared = Arc::clone(shared);
    thread::spawn(move || copy(client, to_server, |_| ()));
    thread::spawn(move || {
        copy(server, to_client, |bytes| {
            lock(&shared).heard.extend_from_slice(bytes);
        });
    });
}

/// Copies until one side ends, and then ends the other.
fn copy(mut from: TcpStream, mut to: TcpStream, heard: impl Fn(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        heard(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Both fail only if the connection is gone.
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers one client in capitals.
    fn shouting() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut text = [0; 4];
            client.read_exact(&mut text).unwrap();
            client.write_all(&text.to_ascii_uppercase()).unwrap();
        });
        address
    }

    fn ask(tap: &Tap, text: &str) -> String {
        let mut stream = TcpStream::connect(tap.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_server_is_heard_and_can_be_replaced() {
        let tap = Tap::start(shouting());
        assert_eq!(ask(&tap, "abab"), "ABAB");
        assert_eq!((tap.count("AB"), tap.count("ab"), tap.bytes()), (2, 0, 4));
        tap.forget();
        tap.lead_to(shouting());
        assert_eq!(ask(&tap, "next"), "NEXT");
        assert_eq!((tap.count("AB"), tap.count("NEXT")), (0, 1));
    }

    #[test]
    fn a_cut_ends_connections_and_new_ones_are_relayed() {
        let tap = Tap::start(shouting());
        let mut stream = TcpStream::connect(tap.address).unwrap();
        // It is relayed before it is cut.
        stream.write_all(b"half").unwrap();
        let mut half = [0; 4];
        stream.read_exact(&mut half).unwrap();
        tap.cut();
        assert_eq!(stream.read(&mut half).unwrap_or(0), 0);
        tap.lead_to(shouting());
        assert_eq!(ask(&tap, "next"), "NEXT");
    }
}
