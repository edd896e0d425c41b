//! A server that greets: `hello-server 127.0.0.1:50051`. It is an ordinary tonic server.

use std::net::SocketAddr;

use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
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
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: hello-server ADDR")?;
    let incoming = TcpIncoming::bind(address.parse()?)?;
    let address = incoming.local_addr()?;
    println!("listening on {address}");
    Server::builder()
        .add_service(GreeterServer::new(FriendlyGreeter { address }))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}
