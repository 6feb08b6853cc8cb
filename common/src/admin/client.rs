//! The other end of an admin socket: one request, one answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Whom a tool asks, and how its operator names another one.
#[derive(Clone, Copy, Debug)]
pub struct Daemon {
    /// Its program, for messages.
    pub name: &'static str,
    /// The environment variable with the path of its socket, beside `--socket`.
    pub variable: &'static str,
}

impl Daemon {
    /// Writes a request line to the socket at `path`, and reads until the answer ends, each within
    /// `timeout`.
    ///
    /// # Errors
    /// A text for the operator: no socket, nobody who listens, no permission, or the time is over.
    pub fn ask(self, path: &Path, line: &str, timeout: Duration) -> Result<Vec<u8>, String> {
        let stream = UnixStream::connect(path).map_err(|error| self.refusal(path, &error))?;
        exchange(stream, line, timeout).map_err(|error| {
            let reason = match error.kind() {
                // A socket's time-out has the kernel's word for "not yet".
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("{} does not answer within {timeout:?}", self.name)
                }
                _ => error.to_string(),
            };
            format!("{}: {reason}", path.display())
        })
    }

    fn refusal(self, path: &Path, error: &io::Error) -> String {
        let Self { name, variable } = self;
        let path = path.display();
        let other = format!("another socket: --socket or {variable}");
        match error.kind() {
            ErrorKind::NotFound => {
                format!("the socket {path} does not exist: is {name} running? ({other})")
            }
            ErrorKind::ConnectionRefused => {
                format!("nobody listens on {path}: is {name} running? ({other})")
            }
            ErrorKind::PermissionDenied => {
                format!("{path}: no permission to ask {name}: try sudo")
            }
            _ => format!("{path}: {error} (is {name} running? {other})"),
        }
    }
}

fn exchange(mut stream: UnixStream, line: &str, timeout: Duration) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(line.as_bytes())?;
    stream.write_all(b"\n")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::Daemon;
    use std::io::ErrorKind;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    const DAEMON: Daemon = Daemon {
        name: "thingd",
        variable: "THING_SOCKET",
    };

    /// Without a daemon the error names the socket and the daemon, and says how to name another.
    #[test]
    fn a_daemon_that_does_not_run_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let other = "another socket: --socket or THING_SOCKET";
        let ask = || DAEMON.ask(&path, "{}", Duration::from_secs(5)).unwrap_err();
        let place = path.display();
        assert_eq!(
            ask(),
            format!("the socket {place} does not exist: is thingd running? ({other})")
        );
        // As after a crash: the file is there, the listener is gone.
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(
            ask(),
            format!("nobody listens on {place}: is thingd running? ({other})")
        );
        let denied = DAEMON.refusal(&path, &ErrorKind::PermissionDenied.into());
        assert_eq!(
            denied,
            format!("{place}: no permission to ask thingd: try sudo")
        );
    }

    /// A daemon that takes the request and never answers does not hold its caller.
    #[test]
    fn a_daemon_that_does_not_answer_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let error = DAEMON
            .ask(&path, "{}", Duration::from_millis(20))
            .unwrap_err();
        assert!(
            error.ends_with("thingd does not answer within 20ms"),
            "{error}"
        );
    }
}
