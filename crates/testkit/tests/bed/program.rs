//! The program that the containers of the tests run: this test binary with another command line.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// First argument of the program in a container.
pub(crate) const PROGRAM: &str = "container-program";
/// Folder with `tls.crt` and `tls.key`, if it also serves HTTPS.
pub(crate) const TLS: &str = "/tls";
/// Label of objects that the webhook denies.
pub(crate) const DENIED: &str = "denied-by-the-webhook";

/// What requests have told the program to be.
#[derive(Default)]
struct State {
    broken: AtomicBool,
    unready: AtomicBool,
}

/// Runs the program, if the command line asks for it.
pub(crate) fn run() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (first, args) = args.split_first()?;
    if first != PROGRAM {
        return None;
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let code = match args.as_slice() {
        ["serve"] => serve(),
        ["whoami"] => whoami(),
        ["exit", code] => end(code),
        // As process 1 of its namespace it does not get a signal that it does not handle.
        ["stubborn"] => loop {
            std::thread::park();
        },
        ["true"] => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::from(2)),
    };
    Some(code.unwrap_or_else(|error| {
        println!("{error:#}");
        ExitCode::FAILURE
    }))
}

fn end(code: &str) -> anyhow::Result<ExitCode> {
    println!("ends with {code}");
    std::fs::write("/dev/termination-log", format!("as told: {code}"))?;
    Ok(ExitCode::from(code.parse::<u8>()?))
}

/// The user that the API server takes the Pod's token for.
#[tokio::main(flavor = "current_thread")]
async fn whoami() -> anyhow::Result<ExitCode> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = kube::Client::try_from(kube::Config::incluster()?)?;
    let api: Api<SelfSubjectReview> = Api::all(client);
    let answer = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = answer.status.and_then(|s| s.user_info).context("no user")?;
    std::fs::write("/dev/termination-log", user.username.unwrap_or_default())?;
    Ok(ExitCode::SUCCESS)
}

#[tokio::main(flavor = "current_thread")]
async fn serve() -> anyhow::Result<ExitCode> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let state = Arc::new(State::default());
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let port = number("PORT")
        .and_then(|p| u16::try_from(p).ok())
        .unwrap_or(8080);
    let _ = std::thread::spawn({
        let (listener, state) = (listen(port)?, Arc::clone(&state));
        move || accept(&listener, |stream| answer(stream, &state))
    });
    if Path::new(TLS).exists() {
        let listener = listen(8443)?;
        let _ = std::thread::spawn(move || {
            accept(&listener, |stream| {
                // Read each time: they follow their Secret.
                let connection = ServerConnection::new(Arc::new(tls()?))?;
                answer(StreamOwned::new(connection, stream), &state)
            });
        });
    }
    println!("serves");
    term.recv().await;
    println!("SIGTERM");
    tokio::time::sleep(Duration::from_millis(number("LINGER_MS").unwrap_or(0))).await;
    println!("bye");
    Ok(ExitCode::SUCCESS)
}

fn tls() -> anyhow::Result<ServerConfig> {
    let file = |name: &str| Path::new(TLS).join(name);
    let certificate = CertificateDer::from_pem_file(file("tls.crt"))?;
    let key = PrivateKeyDer::from_pem_file(file("tls.key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?)
}

fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
}

/// One connection after another: a test has few.
fn accept(listener: &TcpListener, handle: impl Fn(TcpStream) -> anyhow::Result<()>) {
    for stream in listener.incoming().flatten() {
        let timeout = Some(Duration::from_secs(1));
        let _ = stream.set_read_timeout(timeout);
        // A probe that only connects is no error.
        let _ = handle(stream);
    }
}

fn answer(mut stream: impl Read + Write, state: &State) -> anyhow::Result<()> {
    let (head, body) = request(&mut stream)?;
    let path = head.split([' ', '?']).nth(1).context("no path")?;
    let (code, text) = match path {
        "/" => (200, std::env::var("POD_NAME").unwrap_or_default()),
        "/live" => (
            if state.broken.load(Ordering::Relaxed) {
                500
            } else {
                200
            },
            String::new(),
        ),
        "/ready" => (
            if state.unready.load(Ordering::Relaxed) {
                503
            } else {
                200
            },
            String::new(),
        ),
        "/break" => (200, state.broken.swap(true, Ordering::Relaxed).to_string()),
        "/unready" => (200, state.unready.swap(true, Ordering::Relaxed).to_string()),
        "/facts" => (200, facts().to_string()),
        "/admit" => (200, admit(&body)?.to_string()),
        _ => match std::fs::read_to_string(path.strip_prefix("/read").unwrap_or_default()) {
            Ok(text) => (200, text),
            Err(error) => (404, error.to_string()),
        },
    };
    write!(
        stream,
        "HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )?;
    Ok(stream.flush()?)
}

/// Head and body of a request.
fn request(stream: &mut impl Read) -> anyhow::Result<(String, String)> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let named = name.eq_ignore_ascii_case("content-length");
                named.then(|| value.trim().parse().ok()).flatten()
            });
            if body.len() >= length.unwrap_or(0) {
                return Ok((head.to_owned(), body.to_owned()));
            }
        }
        let read = stream.read(&mut buffer)?;
        anyhow::ensure!(read > 0, "the connection ends in the middle");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

/// What a container knows about itself.
fn facts() -> Value {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let env: std::collections::BTreeMap<String, String> = std::env::vars().collect();
    let writable = |path: &str| std::fs::write(Path::new(path).join("new"), "x").is_ok();
    json!({
        "pid": std::process::id(),
        "uid": line("Uid:"), "gid": line("Gid:"),
        "capabilities": line("CapEff:"), "no_new_privileges": line("NoNewPrivs:"),
        "env": env,
        "args": std::env::args().collect::<Vec<_>>(),
        "work_dir": std::env::current_dir().unwrap_or_default(),
        "writes_root": writable("/"), "writes_scratch": writable("/scratch"), "writes_dev": writable("/dev"),
        "writes_volume": writable("/config"),
    })
}

/// Denies what has a label.
fn admit(body: &str) -> anyhow::Result<Value> {
    let review: Value = serde_json::from_str(body)?;
    let request = &review["request"];
    Ok(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": request["uid"],
            "allowed": request["object"]["metadata"]["labels"][DENIED].is_null(),
            "status": {"message": "denied by the webhook in a Pod"},
        },
    }))
}
