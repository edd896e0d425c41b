//! A client that finds its servers by xDS, and lets `crowfly inspect` look at what it knows.

use std::time::Duration;

use hello::HelloRequest;
use hello::greeter_client::GreeterClient;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // For `crowfly inspect --csds ADDR` and `crowfly inspect --tree ADDR`.
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:50060");
    let incoming = TcpIncoming::bind(address.parse()?)?;
    println!("inspect me at {}", incoming.local_addr()?);
    let inspected = Server::builder()
        .add_service(crowfly::csds_service())
        .add_service(crowfly::debug_service())
        .serve_with_incoming(incoming);
    tokio::spawn(inspected);

    // GRPC_XDS_BOOTSTRAP_CONFIG says where the control plane is.
    let channel = crowfly::Channel::connect("xds:///hello")?;
    let mut client = GreeterClient::new(channel);
    loop {
        let name = "world".to_owned();
        match client.say_hello(HelloRequest { name }).await {
            Ok(reply) => println!("{}", reply.into_inner().message),
            Err(status) => eprintln!("{status}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
