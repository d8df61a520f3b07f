use http_body_util::BodyExt;
use hyper::client::conn::http1::{SendRequest, handshake};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::*;
use crate::webhook::certificates::x509::{Authority, Pair, new_authority, server_key};
use crate::webhook::connections::Phase;
use crate::webhook::tls::{Serving, config};

/// More than the buffers of a connection hold.
const LARGE: usize = 16 * 1024 * 1024;
const NAME: &str = "webhook.ns.svc";

/// Answers with the length of the body, after a pause.
struct Echo(Duration);

impl Handler for Echo {
    async fn answer(
        self: Arc<Self>,
        request: Request<Arriving>,
    ) -> (Response<Full<Bytes>>, Option<Held>) {
        tokio::time::sleep(self.0).await;
        let is_large = request.uri().path() == "/large";
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let answer = if is_large {
            vec![b' '; LARGE]
        } else {
            body.len().to_string().into_bytes()
        };
        (Response::new(Full::new(Bytes::from(answer))), None)
    }
}

struct Scene {
    address: std::net::SocketAddr,
    serving: Arc<Serving>,
    connections: Arc<Connections>,
    shutdown: Shutdown,
    server: tokio::task::JoinHandle<()>,
    authority: Pair,
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

impl Scene {
    async fn start(pause: Duration) -> Self {
        let day = Duration::from_hours(24);
        let authority = new_authority(now(), day).unwrap();
        let serving = Arc::new(Serving::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsAcceptor::from(Arc::new(config(Arc::clone(&serving)).unwrap()));
        let (connections, shutdown) = (Arc::new(Connections::default()), Shutdown::default());
        let server = tokio::spawn(serve(
            listener,
            tls,
            Arc::new(Echo(pause)),
            Arc::clone(&connections),
            shutdown.clone(),
        ));
        let scene = Self {
            address,
            serving,
            connections,
            shutdown,
            server,
            authority,
        };
        scene.renew();
        scene
    }

    /// Makes a new serving certificate.
    fn renew(&self) {
        let authority = Authority::parse(&self.authority).unwrap();
        let leaf = authority
            .sign(NAME, now(), Duration::from_hours(1))
            .unwrap();
        assert!(self.serving.set(server_key(&leaf).unwrap().1));
    }

    /// A connection, and the certificate that the server has shown.
    async fn connect(&self) -> anyhow::Result<(SendRequest<Full<Bytes>>, Vec<u8>)> {
        let mut roots = RootCertStore::empty();
        let authority = Authority::parse(&self.authority)?;
        roots.add(authority.certificate.der.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(NAME)?;
        let stream = TlsConnector::from(Arc::new(client))
            .connect(name, stream)
            .await?;
        let (_, session) = stream.get_ref();
        let shown = session.peer_certificates().unwrap_or_default();
        let shown = shown.first().map(|der| der.to_vec()).unwrap_or_default();
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok((sender, shown))
    }
}

async fn send(sender: &mut SendRequest<Full<Bytes>>) -> anyhow::Result<(String, bool)> {
    let request = Request::post("/").body(Full::new(Bytes::from_static(b"four")))?;
    let response = sender.send_request(request).await?;
    let closes = response
        .headers()
        .get(CONNECTION)
        .is_some_and(|v| v == "close");
    let body = response.into_body().collect().await?.to_bytes();
    Ok((String::from_utf8_lossy(&body).into_owned(), closes))
}

#[tokio::test]
async fn a_renewed_certificate_serves_the_next_handshake_and_breaks_no_connection() {
    let scene = Scene::start(Duration::ZERO).await;
    let (mut first, shown) = scene.connect().await.unwrap();
    assert_eq!(send(&mut first).await.unwrap(), ("4".to_owned(), false));
    scene.renew();
    let (mut second, other) = scene.connect().await.unwrap();
    assert!(shown != other && !shown.is_empty());
    for sender in [&mut first, &mut second] {
        assert_eq!(send(sender).await.unwrap(), ("4".to_owned(), false));
    }
    assert_eq!(scene.connections.len(), 2);
}

#[tokio::test]
async fn while_it_leaves_it_answers_and_accepts_and_then_ends() {
    let scene = Scene::start(Duration::from_millis(200)).await;
    let (mut idle, _) = scene.connect().await.unwrap();
    assert!(send(&mut idle).await.is_ok());
    scene.shutdown.leaving.cancel();
    let (mut new, _) = scene.connect().await.unwrap();
    assert_eq!(send(&mut new).await.unwrap(), ("4".to_owned(), true));
    let (mut last, _) = scene.connect().await.unwrap();
    let in_flight = tokio::spawn(async move { send(&mut last).await });
    // The request has arrived, and takes longer than the rest of the port.
    tokio::time::sleep(Duration::from_millis(100)).await;
    scene.shutdown.stopped.cancel();
    let (answered, _) = in_flight.await.unwrap().unwrap();
    assert_eq!(answered, "4");
    scene.server.await.unwrap();
    assert!(scene.connections.is_empty());
    assert!(TcpStream::connect(scene.address).await.is_err());
    assert!(send(&mut idle).await.is_err());
}

#[tokio::test]
async fn connections_without_a_handshake_are_closed_to_make_room() {
    let scene = Scene::start(Duration::ZERO).await;
    let (mut served, _) = scene.connect().await.unwrap();
    assert!(send(&mut served).await.is_ok());
    let mut open = Vec::new();
    for _ in 0..crate::webhook::connections::MOST + 20 {
        open.push(TcpStream::connect(scene.address).await.unwrap());
    }
    let (mut new, _) = scene.connect().await.unwrap();
    assert!(send(&mut new).await.is_ok());
    assert!(scene.connections.len() <= crate::webhook::connections::MOST);
    assert!(scene.connections.evicted() >= 20);
    // The one that has served before is still there.
    assert_eq!(send(&mut served).await.unwrap(), ("4".to_owned(), false));
}

#[tokio::test]
async fn a_response_that_is_not_read_yet_is_not_idle_and_arrives_whole_during_the_shutdown() {
    let scene = Scene::start(Duration::ZERO).await;
    let (mut reader, _) = scene.connect().await.unwrap();
    let request = Request::post("/large").body(Full::new(Bytes::from_static(b"x")));
    let response = reader.send_request(request.unwrap()).await.unwrap();
    let phase = || {
        let open = scene.connections.all();
        assert_eq!(open.len(), 1);
        open[0].phase()
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(phase(), Phase::Response);
    // Not even the shutdown closes it while it is read.
    scene.shutdown.leaving.cancel();
    scene.shutdown.stopped.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), LARGE);
    scene.server.await.unwrap();
}
