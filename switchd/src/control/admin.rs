//! What the admin socket asks and answers, in JSON. Its framing and its bounds are
//! `common::admin`'s.
//!
//! Root and the socket's group may ask. Bytes that are no request are answered with an error and
//! counted.

use super::api::{Answer, CreateJobRequest, JobRow, Request, Response, Topic};
use super::state::State;
use super::trace::trace;
use common::admin::{Listener, TooLong};
use common::sys::monotonic;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often, and at what intervals, to check whether workers have answered: 200 ms in all,
/// hundreds of turns of a worker.
const LOOKS: usize = 100;
const LOOK: Duration = Duration::from_millis(2);

/// Binds the socket, for root and its group.
///
/// # Errors
/// As [`Listener::bind`].
pub fn bind(path: &Path) -> io::Result<Listener> {
    Listener::bind(path, 0o660, "switchd")
}

/// Serves clients until the task is dropped.
pub async fn serve(listener: Listener, state: Arc<Mutex<State>>) {
    let handler = move |line| {
        let state = state.clone();
        async move {
            let response = handle(line, &state).await;
            // No map of it has keys that are no strings.
            serde_json::to_vec(&response).expect("a response is JSON")
        }
    };
    listener.serve(handler).await;
}

async fn handle(line: Result<Vec<u8>, TooLong>, state: &Mutex<State>) -> Response {
    let request = parse(line);
    match &request {
        Ok(Request::Trace(wanted)) => {
            lock(state).admin_requests += 1;
            return trace(wanted, state)
                .await
                .map_or_else(Response::Error, |traced| {
                    Response::Ok(Answer::Trace(traced))
                });
        }
        Ok(Request::CreateJob(wanted)) => {
            lock(state).admin_requests += 1;
            return create_job(wanted, state)
                .await
                .map_or_else(Response::Error, |row| Response::Ok(Answer::Jobs(vec![row])));
        }
        Ok(request) => gather(request, state).await,
        Err(_) => {}
    }
    respond(request, state)
}

/// Asks the workers, if the request is about what only they know. The answer does without a worker
/// that does not reply in time: it is stuck or very busy.
async fn gather(request: &Request, state: &Mutex<State>) {
    let topic = match request {
        Request::Show(show) => show.topic,
        // Whether there is such a job.
        Request::DeleteJob { .. } => Topic::Jobs,
        _ => return,
    };
    match topic {
        Topic::Flowlets => lock(state).ask_for_flowlets(),
        Topic::Elephants => lock(state).ask_for_elephants(),
        Topic::Jobs => lock(state).ask_for_jobs(),
        _ => return,
    }
    for _ in 0..LOOKS {
        if lock(state).have_answered() {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Has a job reserved. Its row.
async fn create_job(wanted: &CreateJobRequest, state: &Mutex<State>) -> Result<JobRow, String> {
    let begun = lock(state).begin_to_create(wanted)?;
    for _ in 0..LOOKS {
        if let Some(row) = begun.end() {
            return row;
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(begun.unanswered())
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a request, or to what is none.
fn respond(request: Result<Request, String>, state: &Mutex<State>) -> Response {
    let mut state = lock(state);
    state.admin_requests += 1;
    match request {
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
        | Request::CreateJob(_)
        | Request::DeleteJob { .. }
        | Request::Reload => {}
    }
    state.answer(request, monotonic())
}

fn parse(line: Result<Vec<u8>, TooLong>) -> Result<Request, String> {
    let line = line.map_err(|error| error.to_string())?;
    serde_json::from_slice(&line).map_err(|error| format!("not a request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::{HoldRequest, ShowRequest};
    use proptest::prelude::*;

    #[test]
    fn requests_survive_the_way() {
        let show = Request::Show(ShowRequest {
            topic: Topic::Routes,
            prefix: Some("10.0.0.0/8".parse().unwrap()),
            names: vec!["swp1".to_owned()],
            limit: None,
        });
        let covering = Request::Show(ShowRequest {
            topic: Topic::Routes,
            prefix: Some("10.0.0.1".parse().unwrap()),
            names: Vec::new(),
            limit: None,
        });
        let hold = Request::Hold(HoldRequest {
            port: "eth0".to_owned(),
            queue: 3,
            release: true,
        });
        let trace = Request::Trace(crate::control::api::TraceRequest {
            filter: "in=p1 drop".to_owned(),
            wait_milliseconds: 5,
            pcap: true,
        });
        let create = Request::CreateJob(CreateJobRequest {
            job: 7,
            members: 4,
            slots: 64,
            payload: 1400,
            operations: vec!["sum".to_owned()],
            types: Vec::new(),
            deterministic: true,
            trees: 2,
            lease_seconds: 60,
        });
        for request in [
            show,
            covering,
            hold,
            trace,
            create,
            Request::ClearCounters,
            Request::ClearWatermarks,
            Request::Reload,
        ] {
            let line = serde_json::to_vec(&request).unwrap();
            assert_eq!(parse(Ok(line)), Ok(request));
        }
        assert!(parse(Ok(br#"{"show":{"topic":"moon"}}"#.to_vec())).is_err());
        assert!(parse(Err(TooLong)).unwrap_err().contains("longer"));
    }

    proptest! {
        /// Any bytes on the admin socket are a request or an error, never a panic.
        #[test]
        fn any_bytes_are_answered(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(Ok(line));
        }
    }
}
