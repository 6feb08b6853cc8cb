//! Network namespaces, and programs in them that end with the test.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use netns::Namespace;
use nix::sys::signal::Signal;

/// A program that is killed with this value, and with the test.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as a crash would (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("our child");
    }

    /// Asks what was started [on its own machine](Node::spawn_as_on_its_own_machine) to end, and
    /// waits until it has.
    pub(crate) fn stop_inside(&mut self) {
        self.signal_inside(Signal::SIGTERM);
        self.0.wait().expect("our child");
    }

    /// Ends what was started there as a crash would (SIGKILL).
    pub(crate) fn kill_inside(&mut self) {
        self.signal_inside(Signal::SIGKILL);
        self.0.wait().expect("our child");
    }

    /// Gives it a signal.
    pub(crate) fn signal_inside(&self, signal: Signal) {
        let mut id = self.id();
        // setpriv and ip become unshare, whose child is the shell, whose child it is.
        for _ in 0..2 {
            let path = format!("/proc/{id}/task/{id}/children");
            let text = fs::read_to_string(path).expect("it runs");
            id = text.trim().parse().expect("one child");
        }
        let id = nix::unistd::Pid::from_raw(i32::try_from(id).expect("a process number"));
        nix::sys::signal::kill(id, signal).expect("it runs");
    }

    /// Gives a signal to what is not on a machine of its own.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).expect("a process number");
        let id = nix::unistd::Pid::from_raw(id);
        nix::sys::signal::kill(id, signal).expect("it runs");
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.0.wait().expect("our child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine: a network namespace, and a folder for its files.
#[derive(Debug)]
pub(crate) struct Node {
    /// As it is called here, and as its files are.
    pub(crate) name: &'static str,
    namespace: Namespace,
    /// Configuration, sockets and logs.
    pub(crate) folder: PathBuf,
}

impl Node {
    /// A machine without links. `folder` becomes its own.
    pub(crate) fn new(name: &'static str, folder: PathBuf) -> Self {
        let namespace = Namespace::new("routing", name).expect("root may make it");
        fs::create_dir(&folder).expect("the folder above is ours");
        let node = Self {
            name,
            namespace,
            folder,
        };
        node.run("ip link set lo up");
        // Without a link-local address, that is until duplicates of it are ruled out, the kernel
        // asks for no neighbour.
        for scope in ["all", "default"] {
            node.run(&format!("sysctl -qw net.ipv6.conf.{scope}.accept_dad=0"));
        }
        node
    }

    /// Name of its namespace.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// Runs a command line, which has to succeed.
    pub(crate) fn run(&self, line: &str) -> String {
        let result = self.namespace.run(line);
        result.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Starts a program; what it says goes to the log `name`.
    pub(crate) fn spawn(&self, name: &str, words: &[&str]) -> Process {
        let log = File::create(self.folder.join(format!("{name}.log"))).expect("our folder");
        let inside = ["ip", "netns", "exec", self.namespace()];
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .args(inside)
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn();
        Process(child.unwrap_or_else(|error| panic!("{words:?}: {error}")))
    }

    /// As [`Self::spawn`], with folders `/run`, `/etc/frr` and `/var/tmp` of the machine's own, so
    /// that programs which are configured for one machine run several times. All that it starts
    /// ends with it, whichever user it has become: the shell stays root and the first process of
    /// the namespace, so that it gets the signal of `--kill-child` and takes the others with it.
    pub(crate) fn spawn_as_on_its_own_machine(&self, name: &str, words: &[&str]) -> Process {
        const SHELL: &str = "mount --bind \"$1/run\" /run && mount --bind \"$1/etc\" /etc/frr && \
                             mount -t tmpfs tmpfs /var/tmp && shift && \"$@\"; exit $?";
        let folder = self.folder.display().to_string();
        let mut all = vec!["unshare", "--mount", "--pid", "--fork", "--kill-child"];
        all.extend(["sh", "-c", SHELL, "sh", &folder]);
        all.extend(words);
        self.spawn(name, &all)
    }

    /// The end of what a program has said.
    pub(crate) fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.join(format!("{name}.log")));
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Gives an interface addresses, each with a length.
    pub(crate) fn address(&self, interface: &str, addresses: &[&str]) {
        for address in addresses {
            let more = if address.contains(':') { " nodad" } else { "" };
            self.run(&format!("ip address add {address} dev {interface}{more}"));
        }
    }
}

/// Runs a program outside of all machines: what it says, or why it failed.
pub(crate) fn run(words: &[&str]) -> Result<String, String> {
    let (program, arguments) = words.split_first().expect("a program");
    lab::command::run(program, arguments).map_err(|error| error.to_string())
}

/// Links two machines: veth, without the offloads that AF_XDP cannot carry.
pub(crate) fn link(one: (&Node, &str), other: (&Node, &str)) {
    let ends = [one, other];
    let [(a, at), (b, bt)] = ends;
    a.run(&format!(
        "ip link add name {at} type veth peer name {bt} netns {}",
        b.namespace()
    ));
    for (node, interface) in ends {
        node.run(&format!(
            "ethtool -K {interface} tx off tso off gso off gro off"
        ));
        node.run(&format!("ip link set {interface} up"));
    }
}
