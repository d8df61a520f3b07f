//! HTTP as raw bytes, valid and invalid.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of an exchange. Twice the limit of the port for a connection, for busy machines.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Everything received until the end of the connection.
#[derive(Clone, Debug)]
pub struct Answer(pub String);

impl Answer {
    /// Status of the first answer; `None` if there was no answer at all.
    pub fn code(&self) -> Option<u16> {
        let status = self.0.strip_prefix("HTTP/1.")?;
        status.split(' ').nth(1)?.parse().ok()
    }

    /// Number of answers.
    pub fn count(&self) -> usize {
        self.0.matches("HTTP/1.1 ").count() + self.0.matches("HTTP/1.0 ").count()
    }

    /// The body of the first answer.
    pub fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}

/// Sends bytes and reads until the other side closes the connection, which it must do by itself.
pub async fn exchange(at: SocketAddr, bytes: &[u8]) -> anyhow::Result<Answer> {
    let exchange = async {
        let stream = TcpStream::connect(at).await?;
        let (mut read, mut write) = stream.into_split();
        let sending = async {
            // The server may close before everything is sent.
            let _ = write.write_all(bytes).await;
            write
        };
        let reading = async {
            let mut answer = Vec::new();
            // A reset after the answer ends it as well as a regular close.
            let _ = read.read_to_end(&mut answer).await;
            answer
        };
        let (_write, answer) = tokio::join!(sending, reading);
        anyhow::Ok(Answer(String::from_utf8_lossy(&answer).into_owned()))
    };
    tokio::time::timeout(LIMIT, exchange)
        .await
        .context("the connection was left open")?
}

/// A plain request.
pub async fn request(at: SocketAddr, method: &str, path: &str) -> anyhow::Result<Answer> {
    let text = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    exchange(at, text.as_bytes()).await
}

/// Reads a page: status code and body.
pub async fn get(at: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let answer = request(at, "GET", path).await?;
    let code = answer.code().context("no HTTP answer")?;
    ensure!(answer.count() == 1, "{answer:?}");
    Ok((code, answer.body().to_owned()))
}
