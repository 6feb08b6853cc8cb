//! The process that runs a laboratory's daemons: `fabric supervise NAME`.
//!
//! ```text
//!              start                       ended (unasked)
//!   stopped ──────────► running ─────────────────────────► waiting
//!      ▲                 │   ▲          delay over            │
//!      └── stop: ended ──┘   └────────────────────────────────┘
//! ```
//!
//! On SIGTERM and SIGINT it takes the whole laboratory down and ends. If it is attached to the
//! process that made the laboratory, it does the same when that process has ended. If it is killed
//! itself, the daemons die by `PDEATHSIG`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixDatagram, UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::access::runs_beside;
use super::control::{DaemonStatus, Request, Response, socket};
use super::sweep::clear;
use super::{LabError, namespace, node_dir, run_dir, settings};

/// First delay before a daemon that crashed is started again; doubles up to [`LONGEST_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// A daemon that ran this long starts over with the first delay.
const STABLE: Duration = Duration::from_secs(10);

/// Niceness of the daemons. They stand for machines with cores of their own: what else runs on this
/// one may make applications slow, but not the network. Without the privilege to set it they run
/// all the same.
const NICE: &str = "-15";

/// Runs a command on a machine of the node's name, which is what the daemons tell their peers.
/// Where that name cannot be set, they tell this machine's.
const NAMED: &str = "{ echo \"$0\" > /proc/sys/kernel/hostname; } 2> /dev/null; exec \"$@\"";

/// How long a daemon may take to drain after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);

struct Daemon {
    status: DaemonStatus,
    wanted: bool,
}

/// A daemon as its task, the control socket and the end of the laboratory share it.
struct Shared {
    daemon: RefCell<Daemon>,
    changed: Notify,
}

impl Shared {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.daemon.borrow().status.pid {
            // It may have ended already; its task will find out.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn running(&self) -> bool {
        self.daemon.borrow().status.pid.is_some()
    }

    /// Ends the daemon: SIGTERM, SIGKILL when it does not drain in time.
    async fn stop(&self) {
        self.daemon.borrow_mut().wanted = false;
        self.changed.notify_waiters();
        self.signal(Signal::SIGTERM);
        let ended = async {
            while self.running() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(DRAIN, ended).await.is_err() {
            self.signal(Signal::SIGKILL);
        }
    }
}

/// Runs the daemons of laboratory `name` until told to end; then takes the laboratory down.
///
/// # Errors
/// When the laboratory's folder or socket cannot be used, or is not that of a laboratory.
pub fn supervise(name: &str, attached: bool) -> Result<(), LabError> {
    let state = settings::State::load(name)?;
    let pid_file = run_dir(name).join("supervisor.pid");
    fs::write(&pid_file, std::process::id().to_string())
        .map_err(LabError::io(pid_file.display().to_string()))?;
    if !runs_beside() {
        prefer_own_session();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LabError::io("event loop"))?;
    LocalSet::new().block_on(&runtime, run(&state, attached))?;
    clear(name)
}

/// Where the kernel shares processors among sessions (`kernel.sched_autogroup_enabled`), niceness
/// counts only inside of one: so the daemons get a session of their own, which is as nice as they
/// are.
fn prefer_own_session() {
    // It fails for the leader of a process group, whose session is then that of its maker.
    if let Err(error) = nix::unistd::setsid() {
        eprintln!("no session of its own: {error}");
        return;
    }
    if let Err(error) = fs::write("/proc/self/autogroup", NICE)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        eprintln!("the session's niceness stays as it is: {error}");
    }
}

async fn run(state: &settings::State, attached: bool) -> Result<(), LabError> {
    let name = state.options.name.clone();
    let path = socket(&name);
    let listener = UnixListener::bind(&path).map_err(LabError::io(path.display().to_string()))?;
    let mut daemons = Vec::new();
    for node in &state.plan().nodes {
        let Some(program) = node.program(state.options.daemons) else {
            continue;
        };
        let status = DaemonStatus {
            node: node.name.clone(),
            program: program.to_owned(),
            pid: None,
            ready: false,
            restarts: 0,
            last_exit: None,
        };
        let daemon = RefCell::new(Daemon {
            status,
            wanted: true,
        });
        let shared = Rc::new(Shared {
            daemon,
            changed: Notify::new(),
        });
        let folder = node_dir(&name, &node.name);
        let notify = folder.join("notify.sock");
        let ready =
            UnixDatagram::bind(&notify).map_err(LabError::io(notify.display().to_string()))?;
        spawn_local(watch_ready(Rc::clone(&shared), ready));
        let run = Run {
            name: name.clone(),
            folder,
            binary: settings::binary(program)?,
        };
        spawn_local(keep_running(Rc::clone(&shared), run));
        daemons.push(shared);
    }
    let daemons = Rc::new(daemons);
    spawn_local(serve(listener, Rc::clone(&daemons)));
    wait_for_end(attached).await?;
    for daemon in daemons.iter() {
        daemon.daemon.borrow_mut().wanted = false;
        daemon.signal(Signal::SIGTERM);
    }
    for daemon in daemons.iter() {
        daemon.stop().await;
    }
    Ok(())
}

async fn wait_for_end(attached: bool) -> Result<(), LabError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(LabError::io("SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(LabError::io("SIGINT"))?;
    let (gone, maker_gone) = tokio::sync::oneshot::channel::<()>();
    if attached {
        // Standard input is a pipe that only the maker of the laboratory holds open.
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = gone.send(());
        });
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = maker_gone => {}
        }
    } else {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
    Ok(())
}

/// Takes READY=1 of the service notification protocol (sd_notify(3)).
async fn watch_ready(shared: Rc<Shared>, socket: UnixDatagram) {
    let mut message = [0; 1024];
    while let Ok(length) = socket.recv(&mut message).await {
        if message[..length]
            .split(|byte| *byte == b'\n')
            .any(|line| line == b"READY=1")
        {
            shared.daemon.borrow_mut().status.ready = true;
        }
    }
}

/// Whether a variable of this name overrides keys of a daemon's configuration: those of whoever
/// made the laboratory are meant for daemons of the machine itself.
fn overrides(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"SWITCHD_") || name.starts_with(b"HOSTD_")
}

/// How to start one daemon.
struct Run {
    name: String,
    folder: PathBuf,
    binary: PathBuf,
}

impl Run {
    fn spawn(&self, node: &str, program: &str) -> std::io::Result<Child> {
        let log = |file: &str| -> std::io::Result<File> {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.folder.join(file))
        };
        let mut command = Command::new("setpriv");
        for name in std::env::vars_os().map(|(name, _)| name) {
            if overrides(&name) {
                command.env_remove(name);
            }
        }
        command
            .args([
                "--pdeathsig",
                "KILL",
                "nice",
                "-n",
                if runs_beside() { "0" } else { NICE },
                "unshare",
                "--uts",
                "sh",
                "-c",
                NAMED,
                node,
                "ip",
                "netns",
                "exec",
                &namespace(&self.name, node),
            ])
            .arg(&self.binary)
            .args(["run", "-c"])
            .arg(self.folder.join(format!("{program}.toml")))
            .env("NOTIFY_SOCKET", self.folder.join("notify.sock"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log(&format!("{program}.log"))?)
            .stderr(log(&format!("{program}.log"))?)
            .spawn()
    }
}

async fn keep_running(shared: Rc<Shared>, run: Run) {
    let (node, program) = {
        let daemon = shared.daemon.borrow();
        (daemon.status.node.clone(), daemon.status.program.clone())
    };
    let mut delay = FIRST_DELAY;
    loop {
        while !shared.daemon.borrow().wanted {
            shared.changed.notified().await;
        }
        let started = Instant::now();
        let exit = match run.spawn(&node, &program) {
            Ok(mut child) => {
                {
                    let status = &mut shared.daemon.borrow_mut().status;
                    status.pid = child.id().and_then(|pid| i32::try_from(pid).ok());
                    status.ready = false;
                }
                child
                    .wait()
                    .await
                    .map_or_else(|e| e.to_string(), |status| status.to_string())
            }
            Err(error) => error.to_string(),
        };
        eprintln!("{node}: {program} ended: {exit}");
        let wanted = {
            let mut daemon = shared.daemon.borrow_mut();
            daemon.status.pid = None;
            daemon.status.ready = false;
            daemon.status.last_exit = Some(exit);
            daemon.wanted
        };
        if !wanted {
            delay = FIRST_DELAY;
            continue;
        }
        if started.elapsed() > STABLE {
            delay = FIRST_DELAY;
        }
        sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
        let mut daemon = shared.daemon.borrow_mut();
        if daemon.wanted {
            daemon.status.restarts += 1;
        }
    }
}

async fn serve(listener: UnixListener, daemons: Rc<Vec<Rc<Shared>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let daemons = Rc::clone(&daemons);
        spawn_local(async move {
            // The client has disconnected: there is no one to answer.
            let _ = answer(stream, &daemons).await;
        });
    }
}

async fn answer(stream: UnixStream, daemons: &[Rc<Shared>]) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let error = match serde_json::from_str::<Request>(&line) {
        Ok(request) => handle(&request, daemons).await.err(),
        Err(error) => Some(error.to_string()),
    };
    let daemons = daemons
        .iter()
        .map(|shared| shared.daemon.borrow().status.clone())
        .collect();
    let mut text = serde_json::to_string(&Response { error, daemons })?;
    text.push('\n');
    stream.write_all(text.as_bytes()).await
}

async fn handle(request: &Request, daemons: &[Rc<Shared>]) -> Result<(), String> {
    let find = |node: &str| {
        let found = daemons
            .iter()
            .find(|shared| shared.daemon.borrow().status.node == node);
        found.ok_or_else(|| format!("no daemon runs on '{node}'"))
    };
    match request {
        Request::Status => {}
        Request::Stop(node) => find(node)?.stop().await,
        Request::Kill(node) => find(node)?.signal(Signal::SIGKILL),
        Request::Start(node) => {
            let shared = find(node)?;
            shared.daemon.borrow_mut().wanted = true;
            shared.changed.notify_waiters();
        }
    }
    Ok(())
}

/// The last lines of a daemon's log, for messages.
#[must_use]
pub fn log_tail(file: &Path, lines: usize) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-1: the daemons of a laboratory go by their files, not by the environment of its maker.
    #[test]
    fn overrides_of_the_maker_are_no_daemons() {
        let kept = |name: &&str| !overrides(OsStr::new(*name));
        let names = [
            "PATH",
            "SWITCHD_ECMP__SEED",
            "HOSTD_LOG__LEVEL",
            "SWITCHCTL_SOCKET",
        ];
        let left: Vec<&str> = names.into_iter().filter(kept).collect();
        assert_eq!(left, ["PATH", "SWITCHCTL_SOCKET"]);
    }
}
