//! Owns one HTTP request of a probe, plain or over TLS. The server's certificate is not verified, as by a kubelet.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

/// Longest head of an answer that is read, in bytes.
const HEAD: usize = 16 << 10;

/// A GET.
#[derive(Debug)]
pub(crate) struct Get {
    pub(crate) to: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) path: String,
    /// With `Host`, unless it is the address.
    pub(crate) headers: Vec<(String, String)>,
    /// Of each step.
    pub(crate) timeout: Duration,
}

/// Sends it from the namespace of the calling thread; the status code. Blocking.
pub(crate) fn get(what: &Get) -> anyhow::Result<u16> {
    let stream = TcpStream::connect_timeout(&what.to, what.timeout)?;
    stream.set_read_timeout(Some(what.timeout))?;
    stream.set_write_timeout(Some(what.timeout))?;
    if what.tls {
        let name = ServerName::IpAddress(what.to.ip().into());
        let connection = ClientConnection::new(Arc::new(config()?), name)?;
        exchange(StreamOwned::new(connection, stream), what)
    } else {
        exchange(stream, what)
    }
}

fn exchange(mut stream: impl Read + Write, what: &Get) -> anyhow::Result<u16> {
    let mut request = format!("GET {} HTTP/1.1\r\n", what.path);
    let is_host = |(name, _): &(String, String)| name.eq_ignore_ascii_case("host");
    if !what.headers.iter().any(is_host) {
        request.push_str(&format!("Host: {}\r\n", what.to));
    }
    for (name, value) in &what.headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("User-Agent: kube-probe/1.34\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let line = status_line(&mut stream)?;
    let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    code.with_context(|| format!("no HTTP answer: {line:?}"))
}

fn status_line(stream: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.contains(&b'\n') && head.len() < HEAD {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        head.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&head);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn config() -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(config)
}

/// Accepts every certificate whose owner has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
