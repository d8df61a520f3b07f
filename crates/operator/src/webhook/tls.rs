//! TLS of the webhook's port: the certificate of each handshake is the newest one.

use std::sync::Arc;

use anyhow::Context;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

/// The certificate to serve with, if there is one.
#[derive(Debug, Default)]
pub struct Serving(RwLock<Option<Arc<CertifiedKey>>>);

impl Serving {
    /// Sets the certificate of the next handshakes. Returns whether it is another one.
    pub fn set(&self, key: CertifiedKey) -> bool {
        let mut present = self.0.write();
        if present.as_ref().is_some_and(|p| p.cert == key.cert) {
            return false;
        }
        *present = Some(Arc::new(key));
        true
    }

    /// Whether there is a certificate.
    pub fn is_set(&self) -> bool {
        self.0.read().is_some()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }
}

/// The TLS settings: version 1.2 or 1.3, HTTP/1.1.
pub fn config(serving: Arc<Serving>) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .context("TLS cannot be set up")?
        .with_no_client_auth()
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
