//! The admin socket: one JSON request line, one JSON answer, end of file.

use super::report::{Ask, Sources};
use crate::app::command::{Command, WorkerHandle};
use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// The longest request.
const REQUEST_MAX: u64 = 4096;

/// How long an operator's program may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes the socket at `path`, for root alone. One that nobody listens on any more is replaced.
///
/// # Errors
/// Another daemon listens there; the folder cannot be written.
pub fn listen_at(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if path.exists() {
        common::sys::require_socket(path)?;
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            Err(error) => return Err(error),
            Ok(_) => {
                let text = format!("another daemon listens on {}", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
        }
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers for ever.
pub async fn serve(listener: UnixListener, sources: Sources, worker: WorkerHandle) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (sources, worker) = (sources.clone(), worker.clone());
                tokio::spawn(async move {
                    let talk = converse(stream, sources, worker);
                    if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, talk).await {
                        tracing::debug!(%error, "admin connection failed");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(
    mut stream: UnixStream,
    sources: Sources,
    worker: WorkerHandle,
) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    let got = BufReader::new(read.take(REQUEST_MAX))
        .read_line(&mut line)
        .await;
    let answer = match got {
        Ok(_) => answer(&line, &sources, &worker).await,
        Err(error) => json!({ "error": error.to_string() }),
    };
    write.write_all(answer.to_string().as_bytes()).await?;
    write.write_all(b"\n").await?;
    write.shutdown().await
}

async fn answer(line: &str, sources: &Sources, worker: &WorkerHandle) -> Value {
    let ask: Ask = match serde_json::from_str(line) {
        Ok(ask) => ask,
        Err(error) => return json!({ "error": format!("malformed request: {error}") }),
    };
    match worker.ask(Command::Report).await {
        Some(report) => sources.rows(ask.show, &report),
        None => json!({ "error": "the worker has ended" }),
    }
}
