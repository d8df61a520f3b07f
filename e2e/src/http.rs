//! HTTP without TLS, as the admin ports speak it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a GET: status code and body.
pub(crate) async fn get(at: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let exchange = async {
        let mut stream = TcpStream::connect(at).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(5), exchange).await??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let code = head.split(' ').nth(1).context("no status line")?.parse()?;
    Ok((code, body.to_owned()))
}
