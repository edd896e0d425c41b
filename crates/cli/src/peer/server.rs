//! A server that does as little as possible, so that a sample measures the connection and not the
//! server.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;

use super::{ANSWER, ASK, NAME, TAKE};
use crate::output;

/// Serves as many connections at once as there are threads, because a thread for each would cost more
/// than the connection.
pub(super) fn serve(listen: SocketAddr, name: Option<&str>, threads: usize) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    // Accepted sockets inherit it. The client closes first, and the server's reset spares it the minute
    // of TIME_WAIT, in which it would run out of ports.
    set_socket_linger(&listener, Some(Duration::ZERO))?;
    output::line(format_args!("listening on {}", listener.local_addr()?));
    for _ in 1..threads {
        let (listener, name) = (listener.try_clone()?, name.map(str::to_owned));
        thread::spawn(move || accept(&listener, name.as_deref()));
    }
    accept(&listener, name)
}

fn accept(listener: &TcpListener, name: Option<&str>) -> io::Result<()> {
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let (mut stream, _) = listener.accept()?;
        // A client that breaks off is its own affair.
        let _ = answer(&mut stream, name, &mut buffer);
    }
}

fn answer(stream: &mut TcpStream, name: Option<&str>, buffer: &mut [u8]) -> io::Result<()> {
    let mut question = [0];
    while stream.read(&mut question)? > 0 {
        match question[0] {
            ASK => stream.write_all(&[ANSWER])?,
            NAME => {
                let name = match name {
                    Some(name) => name.to_owned(),
                    None => stream.local_addr()?.to_string(),
                };
                stream.write_all(format!("{name}\n").as_bytes())?;
            }
            TAKE => {
                let mut length = [0; 8];
                stream.read_exact(&mut length)?;
                take(stream, u64::from_be_bytes(length), buffer)?;
                stream.write_all(&[ANSWER])?;
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

fn take(stream: &mut TcpStream, mut left: u64, buffer: &mut [u8]) -> io::Result<()> {
    while left > 0 {
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = stream.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read as u64;
    }
    Ok(())
}
