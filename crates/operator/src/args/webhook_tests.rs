//! The command line of the webhook as a whole: names of the program, flags and variables (section 1).

use std::ffi::OsString;

use clap::Parser;

use super::webhook::{PROGRAM, WebhookArgs, with_subcommand};
use super::{Args, Command};

fn parse(args: &[&str]) -> Result<(Args, WebhookArgs), clap::Error> {
    let args = with_subcommand(args.iter().map(OsString::from));
    let args = Args::try_parse_from(args)?;
    match &args.command {
        Some(Command::Webhook(webhook)) => {
            let webhook = webhook.clone();
            Ok((args, webhook))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_names_of_the_program_say_their_version() {
    for program in ["harvester-load-balancer", "harvester-load-balancer-webhook"] {
        let args = with_subcommand([program, "--version"].iter().map(OsString::from));
        let said = Args::try_parse_from(args).unwrap_err();
        assert_eq!(said.kind(), clap::error::ErrorKind::DisplayVersion);
        let text = said.to_string();
        assert!(
            text.trim_end().ends_with(env!("CARGO_PKG_VERSION")),
            "{text}"
        );
    }
}

#[test]
fn section_1_the_webhook_has_a_name_and_a_subcommand() {
    for args in [
        &["/usr/bin/harvester-load-balancer-webhook"][..],
        &["harvester-load-balancer-webhook"],
        &["harvester-load-balancer", "webhook"],
    ] {
        let (args, webhook) = parse(args).unwrap();
        assert_eq!(args.loglevel, "info");
        assert_eq!(webhook.port(|_| None).unwrap(), 8443);
        assert_eq!(webhook.admin_address.to_string(), "[::]:8081");
        let names = webhook.place.names().unwrap();
        assert_eq!(
            names.dns_name(),
            "harvester-load-balancer-webhook.harvester-system.svc"
        );
    }
}

#[test]
fn section_1_the_flags_of_the_go_webhook_are_accepted() {
    let (args, webhook) = parse(&[
        PROGRAM,
        "--loglevel=debug",
        "--threadiness=4",
        "--https-port=9443",
        "--namespace=elsewhere",
        "--controller-user=a",
        "--gc-user",
        "b",
        "--service-name=mine",
    ])
    .unwrap();
    assert_eq!(args.loglevel, "debug");
    assert_eq!(webhook.port(|_| Some("1".to_owned())).unwrap(), 9443);
    assert_eq!(
        webhook.place.names().unwrap().dns_name(),
        "mine.elsewhere.svc"
    );
}

#[test]
fn section_1_uninstall_webhook_scales_nothing_by_default() {
    let parse = |flags: &[&str]| {
        let command = ["harvester-load-balancer", "uninstall-webhook"];
        let args = Args::try_parse_from([&command[..], flags].concat()).unwrap();
        match args.command {
            Some(Command::UninstallWebhook(uninstall)) => uninstall,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(parse(&[]).deployment, None);
    let uninstall = parse(&["--deployment=a-webhook", "--service-name=mine"]);
    assert_eq!(uninstall.deployment.as_deref(), Some("a-webhook"));
    assert_eq!(uninstall.place.service_name, "mine");
}

#[test]
fn section_1_the_variable_of_the_chart_comes_second() {
    let (_, webhook) = parse(&[PROGRAM]).unwrap();
    let port = |value: &'static str| {
        webhook.port(move |name| {
            assert_eq!(name, "HARVESTER_WEBHOOK_SERVER_HTTPS_PORT");
            Some(value.to_owned())
        })
    };
    assert_eq!(port("9444").unwrap(), 9444);
    assert_eq!(port("").unwrap(), 8443);
    let wrong = port("x").unwrap_err().to_string();
    assert!(
        wrong.contains("HARVESTER_WEBHOOK_SERVER_HTTPS_PORT"),
        "{wrong}"
    );
}
