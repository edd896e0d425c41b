//! A server that greets: `hello-server 127.0.0.1:50051`. It is an ordinary tonic server.
//!
//! With `hello-server 127.0.0.1:50051 certs` it speaks TLS with the files that `crowfly certs` made
//! in that directory. Then it accepts only clients with a certificate of the same authority.

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

struct FriendlyGreeter {
    address: SocketAddr,
}

#[tonic::async_trait]
impl Greeter for FriendlyGreeter {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let name = request.into_inner().name;
        let message = format!("Hello {name}, from {}", self.address);
        Ok(Response::new(HelloReply { message }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: hello-server ADDR [CERTS]")?;
    let mut server = Server::builder();
    if let Some(certs) = arguments.next() {
        server = server.tls_config(tls(Path::new(&certs))?)?;
    }
    let incoming = TcpIncoming::bind(address.parse()?)?;
    let address = incoming.local_addr()?;
    println!("listening on {address}");
    server
        .add_service(GreeterServer::new(FriendlyGreeter { address }))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

fn tls(certs: &Path) -> Result<ServerTlsConfig, Box<dyn Error>> {
    let read = |name: &str| {
        let path = certs.join(name);
        fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let identity = Identity::from_pem(read("hello-server.pem")?, read("hello-server.key")?);
    let authority = Certificate::from_pem(read("ca.pem")?);
    Ok(ServerTlsConfig::new()
        .identity(identity)
        .client_ca_root(authority))
}
