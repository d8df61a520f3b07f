//! Certificates and keys: parsed from PEM text, and made. No decisions; see [`super`].

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates are valid from this long before they are made, for clients whose clocks are behind.
pub const BACKDATED: Duration = Duration::from_hours(1);
/// Beginning of the common name of our authorities; the time of their creation follows.
const AUTHORITY: &str = "harvester-load-balancer-webhook-ca@";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Why certificates or keys cannot be used or made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unusable {
    /// The text has no certificate that can be parsed.
    #[error("certificate unreadable: {0}")]
    Certificate(String),
    /// The key cannot be parsed, or is of a kind that is not supported.
    #[error("key unreadable: {0}")]
    Key(String),
    /// The key is another certificate's.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// A certificate cannot be made.
    #[error("certificate not made: {0}")]
    NotMade(String),
}

/// A parsed certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its PEM block, with a line break at the end.
    pub pem: String,
    /// Its binary form.
    pub der: CertificateDer<'static>,
    /// Seconds since 1970 from which it is valid.
    pub not_before: i64,
    /// Seconds since 1970 until which it is valid.
    pub not_after: i64,
    /// Its DNS names.
    pub names: Vec<String>,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// Common name of its subject; empty if it has none.
    pub common_name: String,
    key: Vec<u8>,
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Certificate {
    /// Parses a PEM block.
    pub fn parse(block: &str) -> Result<Self, Unusable> {
        let wrong = |error: &dyn std::fmt::Display| Unusable::Certificate(error.to_string());
        let der = CertificateDer::from_pem_slice(block.as_bytes()).map_err(|e| wrong(&e))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|e| wrong(&e))?;
        let names = parsed.subject_alternative_name().map_err(|e| wrong(&e))?;
        let names = names.map_or_else(Vec::new, |extension| {
            let names = extension.value.general_names.iter();
            let dns = names.filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            });
            dns.collect()
        });
        let common_name = parsed.subject().iter_common_name().next();
        let common_name = common_name.and_then(|name| name.as_str().ok());
        Ok(Self {
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            names,
            is_authority: parsed.is_ca(),
            common_name: common_name.unwrap_or_default().to_owned(),
            key: parsed.public_key().raw.to_vec(),
            pem: format!("{}\n", block.trim()),
            der: der.clone(),
        })
    }

    /// All certificates of a text that can be parsed, in order.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let parse = |block| Self::parse(block).ok();
        blocks(text).into_iter().filter_map(parse).collect()
    }

    /// Whether an authority has signed it.
    pub fn is_signed_by(&self, authority: &Self) -> bool {
        let Ok((_, this)) = X509Certificate::from_der(&self.der) else {
            return false;
        };
        let Ok((_, other)) = X509Certificate::from_der(&authority.der) else {
            return false;
        };
        authority.is_authority
            && this.issuer().as_raw() == other.subject().as_raw()
            && this.verify_signature(Some(other.public_key())).is_ok()
    }

    /// Whether one of these authorities has signed it.
    pub fn is_signed_by_any(&self, authorities: &[Self]) -> bool {
        authorities.iter().any(|one| self.is_signed_by(one))
    }

    /// Whether it is an authority that this program made.
    pub fn is_ours(&self) -> bool {
        self.is_authority && self.common_name.starts_with(AUTHORITY)
    }

    /// Whether it is valid at a time, in seconds since 1970.
    pub const fn is_valid_at(&self, now: i64) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Seconds until it expires; negative if it has.
    pub const fn remaining(&self, now: i64) -> i64 {
        self.not_after.saturating_sub(now)
    }

    /// When it was made, in seconds since 1970, if this program made it.
    pub fn made_at(&self) -> i64 {
        self.not_before.saturating_add(seconds(BACKDATED))
    }
}

/// The PEM blocks of certificates in a text, each as it stands there.
fn blocks(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(BEGIN) {
        let from = rest.get(start..).unwrap_or_default();
        let Some(end) = from.find(END) else {
            break;
        };
        let (block, after) = from.split_at(end + END.len());
        found.push(block);
        rest = after;
    }
    found
}

/// A duration in whole seconds.
pub fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// An authority of ours with its key: it can sign.
#[derive(Debug)]
pub struct Authority {
    /// Its certificate.
    pub certificate: Certificate,
    key: KeyPair,
}

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// The authority of a pair. One that this program did not make is an error: its key may be of a kind that cannot sign
    /// here, and its certificate may say anything.
    pub fn parse(pair: &Pair) -> Result<Self, Unusable> {
        let certificate = first(&pair.certificate)?;
        if !certificate.is_ours() {
            let name = &certificate.common_name;
            let text = format!("{name:?} is not an authority of this program");
            return Err(Unusable::Certificate(text));
        }
        let key = KeyPair::from_pem(&pair.key).map_err(|e| Unusable::Key(e.to_string()))?;
        if key.subject_public_key_info() != certificate.key {
            return Err(Unusable::Mismatch);
        }
        Ok(Self { certificate, key })
    }

    /// Makes a server certificate with a DNS name and a new key, valid for a time.
    pub fn sign(&self, dns_name: &str, now: i64, life: Duration) -> Result<Pair, Unusable> {
        let mut params = params(vec![dns_name.to_owned()], dns_name, now, life)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(|e| not_made(&e))?;
        let issuer = authority_params(&self.certificate.common_name)?;
        let issuer = Issuer::from_params(&issuer, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(|e| not_made(&e))?;
        Ok(Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Makes an authority with a new key, valid for a time.
pub fn new_authority(now: i64, life: Duration) -> Result<Pair, Unusable> {
    let key = KeyPair::generate().map_err(|e| not_made(&e))?;
    let mut params = authority_params(&format!("{AUTHORITY}{now}"))?;
    set_validity(&mut params, now, life);
    let certificate = params.self_signed(&key).map_err(|e| not_made(&e))?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// The certificate chain and key of a server, if they can be used for TLS and belong together. Keys may be in any form
/// that the Go operator writes too: PKCS #8, PKCS #1, SEC 1.
pub fn server_key(pair: &Pair) -> Result<(Certificate, CertifiedKey), Unusable> {
    let certificate = first(&pair.certificate)?;
    let chain = blocks(&pair.certificate)
        .into_iter()
        .filter_map(|block| CertificateDer::from_pem_slice(block.as_bytes()).ok());
    let unreadable = |error: &dyn std::fmt::Display| Unusable::Key(error.to_string());
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|e| unreadable(&e))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|e| unreadable(&e))?;
    let certified = CertifiedKey::new(chain.collect(), key);
    match certified.keys_match() {
        Ok(()) => Ok((certificate, certified)),
        Err(_) => Err(Unusable::Mismatch),
    }
}

fn first(text: &str) -> Result<Certificate, Unusable> {
    let block = blocks(text).into_iter().next();
    let block = block.ok_or_else(|| Unusable::Certificate("there is none".to_owned()))?;
    Certificate::parse(block)
}

fn params(
    names: Vec<String>,
    common_name: &str,
    now: i64,
    life: Duration,
) -> Result<CertificateParams, Unusable> {
    let mut params = CertificateParams::new(names).map_err(|e| not_made(&e))?;
    // At most 64 characters fit; the DNS name is what clients check.
    let end = common_name.floor_char_boundary(64);
    let name = common_name.get(..end).unwrap_or_default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    set_validity(&mut params, now, life);
    Ok(params)
}

/// The parameters of an authority, as far as its name and its key depend on them.
fn authority_params(common_name: &str) -> Result<CertificateParams, Unusable> {
    let mut params = params(Vec::new(), common_name, 0, Duration::ZERO)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, now: i64, life: Duration) {
    let epoch = date_time_ymd(1970, 1, 1);
    let now = Duration::from_secs(u64::try_from(now).unwrap_or_default());
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + now.saturating_add(life);
}

fn not_made(error: &rcgen::Error) -> Unusable {
    Unusable::NotMade(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn section_1_what_is_made_can_be_read_and_belongs_together() {
        let pair = new_authority(NOW, 10 * DAY).unwrap();
        let authority = Authority::parse(&pair).unwrap();
        let certificate = &authority.certificate;
        assert!(certificate.is_ours() && certificate.is_authority);
        assert_eq!(certificate.made_at(), NOW);
        assert_eq!(certificate.remaining(NOW), 10 * 86_400);
        assert!(certificate.is_valid_at(NOW - 3600) && !certificate.is_valid_at(NOW - 3601));
        assert!(!certificate.is_valid_at(NOW + 10 * 86_400));
        let leaf = authority.sign("a.b.svc", NOW, DAY).unwrap();
        let (leaf, _) = server_key(&leaf).unwrap();
        assert_eq!(leaf.names, ["a.b.svc"]);
        assert!(leaf.is_signed_by(certificate) && !leaf.is_authority);
        let other = new_authority(NOW, DAY).unwrap();
        let other = Authority::parse(&other).unwrap();
        // Of the same name, made in the same second.
        assert!(!leaf.is_signed_by(&other.certificate));
        assert!(!leaf.is_signed_by(&leaf));
    }

    #[test]
    fn section_1_what_does_not_belong_together_is_found() {
        let [a, b] = [0, 1].map(|n| new_authority(NOW + n, DAY).unwrap());
        let mixed = Pair {
            certificate: a.certificate.clone(),
            key: b.key.clone(),
        };
        assert_eq!(Authority::parse(&mixed).unwrap_err(), Unusable::Mismatch);
        let authority = Authority::parse(&a).unwrap();
        let leaf = authority.sign("a", NOW, DAY).unwrap();
        let wrong = Pair {
            key: b.key,
            ..leaf.clone()
        };
        assert_eq!(server_key(&wrong).unwrap_err(), Unusable::Mismatch);
        // A leaf is no authority.
        assert!(matches!(
            Authority::parse(&leaf),
            Err(Unusable::Certificate(_))
        ));
        for text in [
            "",
            "x",
            BEGIN,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        ] {
            let pair = Pair {
                certificate: text.to_owned(),
                key: leaf.key.clone(),
            };
            assert!(server_key(&pair).is_err(), "{text}");
            assert!(Certificate::parse_all(text).is_empty());
        }
        let keyless = Pair {
            key: String::new(),
            ..leaf
        };
        assert!(matches!(server_key(&keyless), Err(Unusable::Key(_))));
    }

    #[test]
    fn section_1_a_bundle_is_read_in_order() {
        let pairs = [0, 1, 2].map(|n| new_authority(NOW + n, DAY).unwrap().certificate);
        let text = format!("# a\n{}garbage\n{}{}", pairs[0], pairs[1], pairs[2]);
        let read = Certificate::parse_all(&text);
        let made: Vec<i64> = read.iter().map(Certificate::made_at).collect();
        assert_eq!(made, [NOW, NOW + 1, NOW + 2]);
        let joined: String = read.iter().map(|c| &*c.pem).collect();
        assert_eq!(Certificate::parse_all(&joined), read);
    }

    #[test]
    fn section_1_no_key_is_shown_in_the_log() {
        let pair = new_authority(NOW, DAY).unwrap();
        let shown = format!("{pair:?}{:?}", Authority::parse(&pair).unwrap());
        assert!(!shown.contains("PRIVATE"), "{shown}");
    }
}
