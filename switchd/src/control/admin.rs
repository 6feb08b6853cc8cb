//! The admin socket: one JSON request line, one JSON answer, then the end of the stream.
//!
//! Whoever may open the socket may ask; its mode is 0660. Bytes that are no request are answered
//! with an error and counted, and a client that says nothing is let go.

use super::api::{Answer, MAX_REQUEST, Request, Response, Topic};
use super::state::State;
use super::trace::trace;
use common::sys::monotonic;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// A client has this long to ask, and as long to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Clients served at a time; further ones wait in the socket's queue.
const CLIENTS: usize = 32;

/// How often workers are looked at for what they were asked, and after what time each: 200 ms in all, hundreds of turns of
/// a worker.
const LOOKS: usize = 100;
const LOOK: Duration = Duration::from_millis(2);

/// Binds the socket. A socket that nobody listens on any more is replaced.
///
/// # Errors
/// Somebody listens already, or the folder does not permit it.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if path.exists() {
        common::sys::require_socket(path)?;
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            let text = "another switchd listens there";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Serves clients until the task is dropped.
pub async fn serve(listener: UnixListener, state: Arc<Mutex<State>>) {
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = state.clone();
                tokio::spawn(async move {
                    if let Err(error) = client(stream, &state).await {
                        tracing::debug!("admin client: {error}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("admin socket: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn client(mut stream: UnixStream, state: &Mutex<State>) -> io::Result<()> {
    let line = tokio::time::timeout(PATIENCE, read_line(&mut stream)).await??;
    let response = match parse(&line) {
        Ok(Request::Trace(wanted)) => {
            lock(state).admin_requests += 1;
            trace(&wanted, state)
                .await
                .map_or_else(Response::Error, |traced| {
                    Response::Ok(Answer::Trace(traced))
                })
        }
        _ => {
            gather(&line, state).await;
            respond(&line, state)
        }
    };
    let mut text = serde_json::to_vec(&response)?;
    text.push(b'\n');
    tokio::time::timeout(PATIENCE, async {
        stream.write_all(&text).await?;
        stream.shutdown().await
    })
    .await?
}

/// Lets workers tell what only they know, if the request is about that. One that does not tell in time stands still,
/// or is very busy: the answer does without it.
async fn gather(line: &[u8], state: &Mutex<State>) {
    let topic = match parse(line) {
        Ok(Request::Show(show)) => show.topic,
        _ => return,
    };
    match topic {
        Topic::Flowlets => lock(state).ask_for_flowlets(),
        Topic::Elephants => lock(state).ask_for_elephants(),
        _ => return,
    }
    for _ in 0..LOOKS {
        if lock(state).have_answered() {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Bytes up to the end of the line, of the stream, or of what is allowed.
async fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut buffer = [0; 1024];
    while line.len() <= MAX_REQUEST {
        let len = stream.read(&mut buffer).await?;
        let part = &buffer[..len];
        if let Some(end) = part.iter().position(|&byte| byte == b'\n') {
            line.extend_from_slice(&part[..end]);
            break;
        }
        if part.is_empty() {
            break;
        }
        line.extend_from_slice(part);
    }
    Ok(line)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a line.
pub fn respond(line: &[u8], state: &Mutex<State>) -> Response {
    let mut state = lock(state);
    state.admin_requests += 1;
    match parse(line) {
        Ok(request) => answer(&mut state, &request).map_or_else(Response::Error, Response::Ok),
        Err(reason) => {
            state.admin_malformed += 1;
            Response::Error(reason)
        }
    }
}

fn answer(state: &mut State, request: &Request) -> Result<Answer, String> {
    match request {
        Request::ClearCounters => tracing::info!("counters cleared by an operator"),
        Request::ClearWatermarks => tracing::info!("watermarks cleared by an operator"),
        // These are events, and logged as such.
        Request::Show(_)
        | Request::Trace(_)
        | Request::Hold(_)
        | Request::EnablePfc { .. }
        | Request::Reload => {}
    }
    state.answer(request, monotonic())
}

fn parse(line: &[u8]) -> Result<Request, String> {
    if line.len() > MAX_REQUEST {
        return Err(format!("the request is longer than {MAX_REQUEST} bytes"));
    }
    serde_json::from_slice(line).map_err(|error| format!("not a request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::{Hold, Show};
    use proptest::prelude::*;

    #[test]
    fn requests_survive_the_way() {
        let show = Request::Show(Show {
            topic: Topic::Routes,
            prefix: Some("10.0.0.0/8".parse().unwrap()),
            limit: None,
        });
        let hold = Request::Hold(Hold {
            port: "eth0".to_owned(),
            queue: 3,
            release: true,
        });
        let trace = Request::Trace(crate::control::api::Trace {
            filter: "in=p1 drop".to_owned(),
            wait_milliseconds: 5,
            pcap: true,
        });
        for request in [
            show,
            hold,
            trace,
            Request::ClearCounters,
            Request::ClearWatermarks,
            Request::Reload,
        ] {
            let line = serde_json::to_vec(&request).unwrap();
            assert_eq!(parse(&line), Ok(request));
        }
        assert!(parse(br#"{"show":{"topic":"moon"}}"#).is_err());
        assert!(
            parse(&[b' '; MAX_REQUEST + 1])
                .unwrap_err()
                .contains("longer")
        );
    }

    proptest! {
        /// Any bytes on the admin socket are a request or an error, never a panic.
        #[test]
        fn any_bytes_are_answered(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }
    }
}
