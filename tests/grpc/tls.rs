//! The address of a peer under TLS, as tonic reports it: a real handshake on the loopback.

use std::{convert::Infallible, net::Ipv4Addr, sync::Arc, time::Duration};

use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tollgate::key::{Extracted, Key, KeyExtractor, PeerIp};
use tonic::{
    body::Body,
    server::NamedService,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
};
use tower::{Service, ServiceExt, service_fn};

/// Sends the key of each request to a channel.
#[derive(Clone)]
struct Spy(Arc<tokio::sync::mpsc::UnboundedSender<Extracted>>);

impl NamedService for Spy {
    const NAME: &'static str = "spy.Spy";
}

impl Service<Request<Body>> for Spy {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0
            .send(PeerIp::new().extract(&request).unwrap())
            .unwrap();
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn the_peer_is_found_under_tls() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (keys, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(Identity::from_pem(&certificate, key)))
        .unwrap()
        .add_service(Spy(Arc::new(keys)))
        .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener));
    let server = tokio::spawn(server);

    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(certificate))
        .domain_name("localhost");
    let mut channel = Endpoint::from_static("https://localhost")
        .tls_config(tls)
        .unwrap()
        .connect_with_connector(service_fn(move |_| async move {
            TcpStream::connect(address)
                .await
                .map(hyper_util::rt::TokioIo::new)
        }))
        .await
        .unwrap();
    let request = Request::post("https://localhost/spy.Spy/Look")
        .body(Body::empty())
        .unwrap();
    let call = async { channel.ready().await.unwrap().call(request).await };
    let response = tokio::time::timeout(Duration::from_secs(30), call)
        .await
        .unwrap()
        .unwrap();
    assert!(response.status().is_success());
    assert_eq!(
        seen.recv().await,
        Some(Extracted::Key(Key::from(Ipv4Addr::LOCALHOST)))
    );
    server.abort();
}
