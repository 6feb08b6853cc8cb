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

/// How long hostctl waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long the worker may take to report. Who asks hears of one that stands still before his
/// patience ends.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a change may take until it is answered, for the same reason: it takes several looks at
/// the worker.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(4);

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
        return match in_time(CHANGE_TIMEOUT, carry_out(&set, worker)).await {
            Ok(answer) => answer,
            Err(error) => json!({ "error": error }),
        };
    }
    let ask: Ask = match serde_json::from_slice(&line) {
        Ok(ask) => ask,
        Err(error) => return json!({ "error": format!("malformed request: {error}") }),
    };
    match in_time(REPORT_TIMEOUT, worker.ask(Command::Report)).await {
        Ok(Some(report)) => sources.rows(ask.show, &report),
        Ok(None) => json!({ "error": "the worker has ended" }),
        Err(error) => json!({ "error": error }),
    }
}

/// What the worker is asked for, if it comes within `limit`.
async fn in_time<T>(limit: Duration, asked: impl Future<Output = T>) -> Result<T, String> {
    let late = |_| format!("the worker stands still: it has not answered for {limit:?}");
    tokio::time::timeout(limit, asked).await.map_err(late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::command::channels;
    use common::sys::Waker;
    use std::time::Instant;

    /// MG-3: who asks while the worker stands still is told so before he gives up.
    #[test]
    fn a_worker_that_stands_still_is_named_in_time() {
        const { assert!(REPORT_TIMEOUT.as_secs() < PATIENCE.as_secs()) };
        const { assert!(CHANGE_TIMEOUT.as_secs() < PATIENCE.as_secs()) };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (worker, _notices, _control) = channels(Waker::new().expect("a waker"));
        let limit = Duration::from_millis(20);
        let began = Instant::now();
        let answer = runtime.block_on(in_time(limit, worker.ask(Command::Report)));
        let error = answer.expect_err("nobody takes commands");
        assert!(began.elapsed() >= limit);
        let wanted = "the worker stands still: it has not answered for 20ms";
        assert_eq!(error, wanted);
    }
}
