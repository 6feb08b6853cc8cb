//! What the admin socket asks and answers, in JSON. Its framing and its bounds are
//! `common::admin`'s.

use super::change::{AskChange, carry_out};
use super::report::{Ask, Sources};
use crate::edge::command::{Command, WorkerHandle};
use common::admin::{Listener, TooLong};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long the worker may take to report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Binds the socket, for root alone.
///
/// # Errors
/// As [`Listener::bind`].
pub fn bind(path: &Path) -> io::Result<Listener> {
    Listener::bind(path, 0o600, "hostd")
}

/// Serves clients until the task is dropped.
pub async fn serve(listener: Listener, sources: Sources, worker: WorkerHandle) {
    let handler = move |line| {
        let (sources, worker) = (sources.clone(), worker.clone());
        async move {
            let answer = answer(line, &sources, &worker).await;
            answer.to_string().into_bytes()
        }
    };
    listener.serve(handler).await;
}

async fn answer(line: Result<Vec<u8>, TooLong>, sources: &Sources, worker: &WorkerHandle) -> Value {
    let line = match line {
        Ok(line) => line,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    if let Ok(AskChange { set }) = serde_json::from_slice(&line) {
        return carry_out(&set, worker).await;
    }
    let ask: Ask = match serde_json::from_slice(&line) {
        Ok(ask) => ask,
        Err(error) => return json!({ "error": format!("malformed request: {error}") }),
    };
    match tokio::time::timeout(REPORT_TIMEOUT, worker.ask(Command::Report)).await {
        Ok(Some(report)) => sources.rows(ask.show, &report),
        Ok(None) => json!({ "error": "the worker has ended" }),
        Err(_) => json!({ "error": "the worker does not answer" }),
    }
}
