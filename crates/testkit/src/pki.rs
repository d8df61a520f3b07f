//! Owns identities: the certificate authority, the API server's certificate, tokens, kubeconfigs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

/// First address of the Service range, which is the API server's Service.
pub(crate) const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 1);

/// User, token, groups. The two system users have their roles from the API server's defaults.
const USERS: [(&str, &str, &str); 5] = [
    ("admin", "admin-token", "system:masters"),
    ("pod-runner", "pod-runner-token", "system:masters"),
    ("system:kube-controller-manager", "kcm-token", ""),
    ("system:kube-proxy", "proxy-token", ""),
    ("kube-vip", "kube-vip-token", ""),
];

/// The certificate authority of one test cluster.
pub(crate) struct Pki {
    authority: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Pki {
    /// Creates the authority, the API server's certificate, the key of the ServiceAccount tokens and the token file,
    /// all in `folder`.
    pub(crate) fn create(folder: &Path, server: Ipv4Addr) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "test bed");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let pki = Self {
            authority,
            folder: folder.to_path_buf(),
        };
        std::fs::write(pki.file("ca.crt"), pki.ca_pem())?;

        let names = ["kubernetes.default.svc", "kubernetes", "localhost"];
        let addresses = [server, KUBERNETES_SERVICE, Ipv4Addr::LOCALHOST];
        let (certificate, key) = pki.issue("kube-apiserver", &names, &addresses)?;
        std::fs::write(pki.file("apiserver.crt"), certificate)?;
        std::fs::write(pki.file("apiserver.key"), key)?;
        let accounts = KeyPair::generate()?;
        std::fs::write(pki.file("sa.key"), accounts.serialize_pem())?;
        std::fs::write(pki.file("sa.pub"), accounts.public_key_pem())?;

        let tokens =
            USERS.map(|(user, token, groups)| format!("{token},{user},{user},\"{groups}\""));
        std::fs::write(pki.file("tokens.csv"), tokens.join("\n"))?;
        Ok(pki)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.authority.pem()
    }

    /// A server certificate and its key, both PEM.
    pub(crate) fn issue(
        &self,
        name: &str,
        names: &[&str],
        addresses: &[Ipv4Addr],
    ) -> anyhow::Result<(String, String)> {
        let mut params =
            CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
        params
            .subject_alt_names
            .extend(addresses.iter().map(|a| SanType::IpAddress(IpAddr::V4(*a))));
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.authority)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

/// Token of one of the test cluster's users.
pub(crate) fn token_of(user: &str) -> anyhow::Result<&'static str> {
    USERS
        .iter()
        .find(|(name, ..)| *name == user)
        .map(|(_, token, _)| *token)
        .with_context(|| format!("the bed has no user {user:?}"))
}

/// Text of a kubeconfig with one user.
pub(crate) fn kubeconfig(server: &str, ca: &Path, user: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: cluster\n\
         clusters: [{{name: cluster, cluster: {{server: \"{server}\", certificate-authority: \"{ca}\"}}}}]\n\
         contexts: [{{name: cluster, context: {{cluster: cluster, user: \"{user}\"}}}}]\n\
         users: [{{name: \"{user}\", user: {{token: \"{token}\"}}}}]\n",
        ca = ca.display()
    )
}
