//! The command line of the webhook (section 1).

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use clap::Args;
use harvester_lb_object::is_dns_label;

use crate::webhook_names::Names;

/// The name of the program that the charts start as the webhook.
pub(super) const PROGRAM: &str = "harvester-load-balancer-webhook";
/// The subcommand that does the same.
const SUBCOMMAND: &str = "webhook";
/// Port of the upstream webhook.
const HTTPS_PORT: u16 = 8443;
/// The prefix of the variables that Harvester's chart sets. The Go operator does not read them.
const PREFIX: &str = "HARVESTER_";

/// Where the webhook runs.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// Namespace of the webhook, its Service and its Secrets.
    #[arg(long, env = "NAMESPACE", default_value = "harvester-system")]
    pub namespace: String,
    /// Name of the webhook's Service. Certificate and registration follow it.
    #[arg(long, env = "WEBHOOK_SERVICE_NAME", default_value = PROGRAM)]
    pub service_name: String,
}

impl Place {
    /// The names that follow from it.
    ///
    /// # Errors
    /// A value that is no DNS label.
    pub fn names(&self) -> anyhow::Result<Names> {
        for (flag, value) in [
            ("--namespace", &self.namespace),
            ("--service-name", &self.service_name),
        ] {
            anyhow::ensure!(
                is_dns_label(value),
                "{flag} {value:?} is no name of a Kubernetes object: lower case letters, digits and dashes, at most 63"
            );
        }
        Ok(Names {
            namespace: self.namespace.clone(),
            service: self.service_name.clone(),
        })
    }
}

/// The flags of `uninstall-webhook`.
#[derive(Clone, Debug, Args)]
pub struct UninstallArgs {
    /// Where it runs.
    #[command(flatten)]
    pub place: Place,
    /// Name of the webhook's Deployment, which is scaled to 0 before the Secrets are removed: a container that restarts
    /// later would register the webhook again. Without it nothing is scaled.
    #[arg(long)]
    pub deployment: Option<String>,
}

/// The flags of the webhook.
#[derive(Clone, Debug, Args)]
pub struct WebhookArgs {
    /// Where it runs.
    #[command(flatten)]
    pub place: Place,
    /// Port for the API server, with TLS [default: 8443].
    #[arg(long, env = "WEBHOOK_SERVER_HTTPS_PORT")]
    pub https_port: Option<u16>,
    /// Address of the admin port: /healthz, /readyz, /metrics.
    #[arg(long, env = "ADMIN_ADDRESS", default_value = "[::]:8081")]
    pub admin_address: SocketAddr,
    /// Accepted for the Go operator's charts; without effect.
    #[arg(long, env = "THREADINESS", hide = true)]
    pub threadiness: Option<usize>,
    /// Accepted for the Go operator's charts; without effect.
    #[arg(long, env = "CONTROLLER_USER_NAME", hide = true)]
    pub controller_user: Option<String>,
    /// Accepted for the Go operator's charts; without effect.
    #[arg(long, env = "GARBAGE_COLLECTION_USER_NAME", hide = true)]
    pub gc_user: Option<String>,
}

impl WebhookArgs {
    /// The port for the API server: the flag, else `WEBHOOK_SERVER_HTTPS_PORT`, else the variable that Harvester's chart
    /// sets, `HARVESTER_WEBHOOK_SERVER_HTTPS_PORT`, else 8443.
    ///
    /// # Errors
    /// A variable that is no port.
    pub fn port(&self, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<u16> {
        if let Some(port) = self.https_port {
            return Ok(port);
        }
        let name = format!("{PREFIX}WEBHOOK_SERVER_HTTPS_PORT");
        match variable(&name).filter(|value| !value.is_empty()) {
            Some(value) => {
                let port = value.parse();
                port.with_context(|| format!("the variable {name} is {value:?}, which is no port"))
            }
            None => Ok(HTTPS_PORT),
        }
    }
}

/// The command line with the subcommand that the name of the program stands for.
pub(super) fn with_subcommand(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let program = args.first().map(Path::new).and_then(Path::file_name);
    if program.is_some_and(|name| name == PROGRAM) {
        args.insert(1, SUBCOMMAND.into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_1_names_are_checked() {
        for (name, is_one) in [("a", true), ("", false), ("a.b", false)] {
            let place = Place {
                namespace: name.to_owned(),
                service_name: "a".to_owned(),
            };
            assert_eq!(place.names().is_ok(), is_one, "{name}");
        }
    }
}
