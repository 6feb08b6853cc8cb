//! Network namespaces, veth pairs and pinned processes, each removed when its value is dropped.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The core that offers traffic.
pub const SOURCE_CORE: usize = 0;
/// The core that forwards.
pub const FORWARD_CORE: usize = 1;

/// Runs a command line and returns what it printed.
///
/// # Errors
/// The command line and what it wrote to standard error.
pub fn run(line: &str) -> Result<String, String> {
    netns::run(line).map_err(|error| error.to_string())
}

/// A network namespace, deleted with this value.
#[derive(Debug)]
pub struct Namespace(netns::Namespace);

impl Namespace {
    /// Creates one called `bench-PID-NAME`.
    ///
    /// # Errors
    /// When `ip` does not do it; it needs root.
    pub fn new(name: &str) -> Result<Self, String> {
        let namespace = netns::Namespace::new("bench", name).map_err(|error| error.to_string())?;
        let namespace = Self(namespace);
        namespace.run("ip link set lo up")?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Runs a command line inside.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(&self, line: &str) -> Result<String, String> {
        self.0.run(line).map_err(|error| error.to_string())
    }

    /// A command that will run inside, on `core` if one is given, before everything that is not
    /// measured. It dies with this process: one that polls for ever would leave nothing of its core
    /// to anybody else.
    pub fn command(&self, core: Option<usize>, program: &Path) -> Command {
        let mut command = self.helper("chrt");
        command.args(["-f", "1"]);
        if let Some(core) = core {
            command.args(["taskset", "-c", &core.to_string()]);
        }
        command.arg(program);
        command
    }

    /// A command for `program`, found in the path, that will run inside and dies with this process.
    pub fn helper(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "ip",
            "netns",
            "exec",
            self.name(),
            program,
        ]);
        command
    }

    /// Moves the calling thread inside, for good.
    ///
    /// # Errors
    /// When it may not.
    pub fn enter(&self) -> Result<(), String> {
        let fail = |error| format!("{}: {error}", self.name());
        self.0.enter().map_err(fail)
    }

    /// Runs `work` on a thread of its own inside, and waits for it.
    ///
    /// # Errors
    /// When the thread may not enter, and those of `work`.
    pub fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send,
    ) -> Result<T, String> {
        let fail = |error| format!("{}: {error}", self.name());
        netns::inside(self.name(), work).map_err(fail)?
    }

    /// A veth pair with one end here and one in `other`, without the offloads that AF_XDP cannot
    /// take. Both ends up.
    ///
    /// # Errors
    /// As [`run`].
    pub fn link(&self, end: &str, other: &Self, other_end: &str) -> Result<(), String> {
        self.run(&format!(
            "ip link add name {end} type veth peer name {other_end} netns {}",
            other.name()
        ))?;
        for (namespace, end) in [(self, end), (other, other_end)] {
            namespace.0.set_up(end).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Station address of a device inside, as `ip` writes it.
    ///
    /// # Errors
    /// As [`run`].
    pub fn mac(&self, device: &str) -> Result<String, String> {
        let text = self.run(&format!("cat /sys/class/net/{device}/address"))?;
        Ok(text.trim().to_owned())
    }
}

/// The bytes of a station address; zeros for what is none.
pub fn mac_bytes(text: &str) -> [u8; 6] {
    let mut mac = [0; 6];
    for (byte, digits) in mac.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(digits, 16).unwrap_or(0);
    }
    mac
}

/// Keeps the calling thread on `core`.
///
/// # Errors
/// When the machine does not have it.
pub fn pin(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| format!("core {core}: {error}"))
}

/// Runs the calling thread before all ordinary ones: what else the machine does is not to be
/// measured. Those that measure have priority 2, those that are measured 1.
///
/// # Errors
/// When that is not allowed.
pub fn run_first(priority: u8) -> Result<(), String> {
    let thread = nix::unistd::gettid();
    run(&format!("chrt -f -p {priority} {thread}")).map(drop)
}

/// Undoes [`run_first`]: the next measurement runs at ordinary priority.
///
/// # Errors
/// When that is not allowed.
pub fn run_as_others() -> Result<(), String> {
    let thread = nix::unistd::gettid();
    run(&format!("chrt -o -p 0 {thread}")).map(drop)
}

/// A process of ours, terminated with this value, and killed if that does not suffice.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it, its output going to `log`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, String> {
        let fail = |error| format!("{command:?}: {error}");
        let output = File::create(log).map_err(fail)?;
        let errors = output.try_clone().map_err(fail)?;
        command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map(Self)
            .map_err(|error| format!("{command:?}: {error}"))
    }

    /// Whether it runs still.
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Its number. `setpriv`, `ip netns exec` and `taskset` replace themselves, so this is the
    /// program's own.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGTERM);
        if !wait_until(Duration::from_secs(3), || !self.is_running()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Seconds that the threads of process `pid` have run, exact to the nanosecond.
///
/// # Errors
/// When the process is gone.
pub fn thread_seconds(pid: u32) -> Result<f64, String> {
    let tasks = format!("/proc/{pid}/task");
    let folder = std::fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
    let threads = folder.flatten().map(|entry| entry.path());
    // A thread that has just ended has run out of the sum.
    Ok(threads.filter_map(|task| ran(&task)).sum())
}

/// Seconds that the threads of process `pid` have run, and with them the thread that runs soft
/// interrupts on `core` when they are too many.
///
/// # Errors
/// When the process is gone.
pub fn running_seconds(pid: u32, core: usize) -> Result<f64, String> {
    let soft = soft_interrupt_thread(core).and_then(|thread| ran(&thread));
    Ok(thread_seconds(pid)? + soft.unwrap_or(0.0))
}

/// Seconds that a thread has run, by its folder in `/proc`; `None` when it is gone.
pub fn ran(thread: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    let nanos: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanos / 1e9)
}

fn soft_interrupt_thread(core: usize) -> Option<PathBuf> {
    let name = format!("ksoftirqd/{core}");
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.flatten().map(|entry| entry.path()).find(|path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    })
}

/// Asks every 20 ms whether `condition` holds, for `limit` at most. Returns whether it came to
/// hold.
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}
