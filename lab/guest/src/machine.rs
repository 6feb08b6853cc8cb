//! The emulator and the line to the agent in the guest.

use netns::Output;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::QEMU;
use super::kernel::{Kernel, named};

/// Process 1 in the initramfs.
const INIT: &str = include_str!("init");

/// Process 1 after that.
const AGENT: &str = include_str!("agent");

/// First part of the names of folders that are shared with guests; the process follows.
const SHARED: &str = "fabric-guest-";

/// Longest time from the start of the emulator until the agent answers: it takes about 10 s on an
/// idle machine of 2026.
const BOOT_TIME: Duration = Duration::from_secs(180);

/// How often the output of a script is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Parameters of the kernel. Watchdogs, and its check that the timer ticks, are off because
/// emulated processors may stand still for seconds: it would panic as if the machine had no timer.
/// The time stamp counter follows the clock of the host, and is the one clock that takes no exit to
/// the emulator.
const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr nowatchdog \
    no_timer_check tsc=reliable clocksource=tsc random.trust_cpu=on \
    rcupdate.rcu_cpu_stall_suppress=1";

/// What to boot.
#[derive(Debug, Clone)]
pub struct Options {
    /// Virtual processors; each keeps up to one of the host busy.
    pub processors: u8,
    /// Memory, in MiB. Files that are written in the guest take of it.
    pub memory_mib: u32,
    /// An interface on a link of the host. Without, the guest has `lo` only.
    pub nic: Option<Nic>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            processors: 2,
            memory_mib: 2048,
            nic: None,
        }
    }
}

/// An interface of the guest, called `eth0` there, without offloads.
#[derive(Debug, Clone)]
pub struct Nic {
    /// Network namespace of the host in which its other end is.
    pub namespace: String,
    /// The other end: a tap of that namespace.
    pub tap: String,
    /// Its MAC address, as in `02:00:00:00:00:01`.
    pub mac: String,
}

/// A script that runs in the guest.
#[derive(Debug)]
pub struct Script {
    number: u32,
    out: Follow,
    err: Follow,
}

/// A guest that is up. Dropped, it is gone. It also goes with the *thread* that has booted it.
#[derive(Debug)]
pub struct Guest {
    process: Child,
    control: UnixStream,
    messages: Receiver<String>,
    shared: TempDir,
    scripts: u32,
    /// Scripts that have ended and for which nobody has waited yet, with their status.
    ended: HashMap<u32, i32>,
}

impl Guest {
    /// Boots a guest and waits until it runs scripts.
    ///
    /// # Errors
    /// When something is missing that `scripts/setup --guest` installs, or the guest does not come
    /// up: the end of what it printed.
    pub fn boot(options: &Options) -> io::Result<Self> {
        sweep()?;
        let kernel = Kernel::find()?;
        let shared = tempfile::Builder::new()
            .prefix(&format!("{SHARED}{}-", std::process::id()))
            .tempdir()?;
        let folder = shared.path();
        fs::write(folder.join("initramfs"), kernel.initramfs(INIT)?)?;
        fs::write(folder.join("agent"), AGENT)?;
        let kept = kernel.folder().display().to_string();
        fs::write(folder.join("kernel"), kept)?;
        let socket = folder.join("control");
        let listener = UnixListener::bind(&socket).map_err(|error| named(&socket, &error))?;
        let error = File::create(folder.join("qemu"))?;
        let process = command(options, &kernel, folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(error)
            .spawn()
            .map_err(|error| named(Path::new(QEMU), &error))?;
        let (sender, messages) = channel();
        let mut booting = Booting { process, shared };
        let control = booting.connected(&listener)?;
        let lines = BufReader::new(control.try_clone()?);
        std::thread::spawn(move || forward(lines, &sender));
        let mut guest = booting.into_guest(control, messages);
        guest.message(Instant::now() + BOOT_TIME, "ready")?;
        Ok(guest)
    }

    /// Runs a script of bash and waits for it; what it prints appears on standard error meanwhile.
    ///
    /// # Errors
    /// As [`Guest::wait`].
    pub fn run(&mut self, script: &str, limit: Duration) -> io::Result<Output> {
        let script = self.start(script)?;
        self.wait(script, limit)
    }

    /// Starts a script of bash.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn start(&mut self, script: &str) -> io::Result<Script> {
        let number = self.scripts;
        self.scripts += 1;
        let file = |end: &str| self.shared.path().join(format!("{number}{end}"));
        fs::write(file(""), script)?;
        // The guest opens what is there, so that they can be followed from the start.
        let [out, err] = [file(".out"), file(".err")].map(Follow::new);
        let started = Script {
            number,
            out: out?,
            err: err?,
        };
        writeln!(self.control, "{number}").map_err(|_| self.gone("it is gone"))?;
        Ok(started)
    }

    /// Waits for a script that was started; what it prints appears on standard error meanwhile.
    ///
    /// # Errors
    /// When it takes longer than `limit`, or the guest goes meanwhile. The guest should be dropped
    /// then, for the script may still run.
    pub fn wait(&mut self, mut script: Script, limit: Duration) -> io::Result<Output> {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.ended.remove(&script.number) {
                break status;
            }
            script.show()?;
            match self.messages.recv_timeout(LOOK) {
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.gone(&format!("a script takes longer than {limit:?}")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone("it is gone")),
            }
        };
        script.show()?;
        Ok(Output {
            status,
            stdout: script.out.text,
            stderr: script.err.text,
        })
    }

    /// What the guest's kernel has printed.
    #[must_use]
    pub fn console(&self) -> String {
        text(&self.shared.path().join("console"))
    }

    /// Waits for a message of the agent.
    fn message(&mut self, deadline: Instant, wanted: &str) -> io::Result<()> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(line) if line == wanted => return Ok(()),
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.gone(&format!("not up after {BOOT_TIME:?}")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone("it is gone")),
            }
        }
    }

    /// Takes the message that a script has ended.
    fn note(&mut self, line: &str) {
        let mut words = line.split(' ').map(str::parse::<i32>);
        if let (Some(Ok(number)), Some(Ok(status))) = (words.next(), words.next()) {
            let number = u32::try_from(number).expect("scripts are counted up from zero");
            self.ended.insert(number, status);
        }
    }

    /// An error with what the emulator and the kernel have said.
    fn gone(&self, what: &str) -> io::Error {
        failure(self.shared.path(), what)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// An emulator that has not connected yet; ends it when that fails.
struct Booting {
    process: Child,
    shared: TempDir,
}

impl Booting {
    /// Waits until the emulator has connected, which it does before it boots.
    fn connected(&mut self, listener: &UnixListener) -> io::Result<UnixStream> {
        listener.set_nonblocking(true)?;
        let deadline = Instant::now() + BOOT_TIME;
        let why = loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => break error.to_string(),
            }
            match self.process.try_wait()? {
                Some(status) => break format!("{QEMU} ended: {status}"),
                None if Instant::now() > deadline => break format!("{QEMU} does not connect"),
                None => sleep(LOOK),
            }
        };
        end(&mut self.process);
        Err(failure(self.shared.path(), &why))
    }

    fn into_guest(self, control: UnixStream, messages: Receiver<String>) -> Guest {
        Guest {
            process: self.process,
            control,
            messages,
            shared: self.shared,
            scripts: 0,
            ended: HashMap::new(),
        }
    }
}

/// A file of the shared folder that grows.
#[derive(Debug)]
struct Follow {
    file: File,
    text: String,
    /// Bytes after the last whole character.
    rest: Vec<u8>,
}

impl Follow {
    fn new(path: PathBuf) -> io::Result<Self> {
        File::create(&path).map_err(|error| named(&path, &error))?;
        Ok(Self {
            file: File::open(&path)?,
            text: String::new(),
            rest: Vec::new(),
        })
    }

    /// Prints what has been added.
    fn show(&mut self) -> io::Result<()> {
        self.file.read_to_end(&mut self.rest)?;
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let added: Vec<u8> = self.rest.drain(..whole).collect();
        let added = String::from_utf8_lossy(&added);
        eprint!("{added}");
        self.text.push_str(&added);
        Ok(())
    }
}

impl Script {
    /// Prints what it has printed since the last time.
    fn show(&mut self) -> io::Result<()> {
        self.out.show()?;
        self.err.show()
    }
}

/// The emulator's command line.
fn command(options: &Options, kernel: &Kernel, shared: &Path) -> Command {
    let mut command = match &options.nic {
        Some(nic) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &nic.namespace, "setpriv"]);
            command
        }
        None => Command::new("setpriv"),
    };
    let at = |file: &str| shared.join(file).display().to_string();
    let shared = shared.display();
    command.args(["--pdeathsig", "KILL", QEMU, "-nodefaults"]);
    command.args(["-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-machine", "q35", "-accel", "tcg,thread=multi"]);
    command.args(["-cpu", "max", "-smp", &options.processors.to_string()]);
    command.args(["-m", &options.memory_mib.to_string()]);
    command.arg("-kernel").arg(kernel.image());
    command.args(["-initrd", &at("initramfs"), "-append", PARAMETERS]);
    command.args(["-serial", &format!("file:{}", at("console"))]);
    command.args(["-device", "virtio-serial-pci"]);
    command.args([
        "-chardev",
        &format!("socket,id=control,path={}", at("control")),
    ]);
    command.args(["-device", "virtserialport,chardev=control,name=control"]);
    for (tag, file_system) in [
        // Mounts of the host that the guest sees have inodes of their own.
        ("host", "path=/,readonly=on,multidevs=remap".to_owned()),
        ("shared", format!("path={shared}")),
    ] {
        let file_system = format!("local,id={tag},security_model=none,{file_system}");
        command.args(["-fsdev", &file_system]);
        let device = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
        command.args(["-device", &device]);
    }
    if let Some(Nic { tap, mac, .. }) = &options.nic {
        let link = format!("tap,id=nic,ifname={tap},script=no,downscript=no");
        // Frames carry their checksums, and are no longer than the link's.
        let device = format!("virtio-net-pci,netdev=nic,mac={mac},romfile=,csum=off,gso=off");
        command.args(["-netdev", &link, "-device", &device]);
    }
    command
}

/// Passes on what the agent says, line by line, until the emulator ends.
fn forward(lines: BufReader<UnixStream>, to: &Sender<String>) {
    for line in lines.lines() {
        let Ok(line) = line else { return };
        if to.send(line).is_err() {
            return;
        }
    }
}

/// Ends the emulator.
fn end(process: &mut Child) {
    // It may have ended by itself.
    let _ = process.kill();
    let _ = process.wait();
}

/// An error about the guest, with the end of what the emulator and the kernel have said.
fn failure(shared: &Path, what: &str) -> io::Error {
    let tail = |file: &str| {
        let text = text(&shared.join(file));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    };
    let (qemu, console) = (tail("qemu"), tail("console"));
    io::Error::other(format!("the guest: {what}\n{qemu}\n{console}"))
}

/// A file that may not be there yet and may hold anything.
fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Deletes folders that were shared with guests of processes that were killed.
fn sweep() -> io::Result<()> {
    for entry in std::env::temp_dir().read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let process = name
            .strip_prefix(SHARED)
            .and_then(|rest| rest.split('-').next());
        let ended = |pid: &str| !Path::new("/proc").join(pid).exists();
        if process.is_some_and(ended) {
            // Another test may be deleting it just now.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
