//! Servers and clients on hosts of a laboratory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use fabric_tests::installed::{self, Linked, library_folder, root};
use lab::Builder;
use lab::observe::{fabric, rows};
use lab::{Lab, exclusive};
use nix::fcntl::Flock;
use tempfile::TempDir;

/// A fabric with two leaves and two spines, and the installed library.
pub(crate) struct Rig {
    lab: Lab,
    system: TempDir,
    _alone: Flock<File>,
}

impl Rig {
    /// The name has at most 8 letters.
    pub(crate) fn new(name: &str) -> Self {
        Self::with(fabric(name))
    }

    /// The same, and switches compute for jobs.
    pub(crate) fn computing(name: &str) -> Self {
        Self::with(fabric(name).compute())
    }

    /// Runs `work` where groups reduce between the hosts, and where they do so through switches.
    pub(crate) fn both_ways(name: &str, work: impl Fn(&Self)) {
        for make in [Self::new, Self::computing] {
            work(&make(name));
        }
    }

    fn with(lab: Builder) -> Self {
        let alone = exclusive().unwrap();
        let system = tempfile::tempdir().unwrap();
        let _ = installed::make("install", system.path());
        let lab = lab.size(2, 2, 2).up().unwrap();
        Self {
            lab,
            system,
            _alone: alone,
        }
    }

    pub(crate) fn with_lab(&self, work: impl FnOnce(&Lab)) {
        work(&self.lab);
    }

    /// Builds a C program with the installed library.
    pub(crate) fn compile(&self, source: &Path) -> PathBuf {
        installed::compile(self.system.path(), source, Linked::Shared)
    }

    /// Builds an example in C.
    pub(crate) fn example(&self, name: &str) -> PathBuf {
        let folder = root().join("hostd/client/c/examples");
        self.compile(&folder.join(format!("{name}.c")))
    }

    /// Where servers are reached.
    pub(crate) fn server_address(&self) -> String {
        self.address("h2")
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: &str) -> String {
        self.lab.host(host).address(false).to_string()
    }

    /// The folder of the installed library.
    pub(crate) fn system(&self) -> &Path {
        self.system.path()
    }

    /// Where applications reach the daemon of a host.
    pub(crate) fn socket(&self, host: &str) -> PathBuf {
        lab::node_dir(self.lab.name(), host).join("hostd.sock")
    }

    /// The namespace of a host, and the interface there to its leaf.
    pub(crate) fn leaf(&self, host: &str) -> [String; 2] {
        let ports = rows(self.lab.hostctl(host, &["show", "ports"]).unwrap());
        let name = ports[0]["name"].as_str().unwrap();
        [lab::namespace(self.lab.name(), host), name.to_owned()]
    }

    /// Bytes that hostd has sent from a host.
    pub(crate) fn sent(&self, host: &str) -> u64 {
        let ports = rows(self.lab.hostctl(host, &["show", "ports"]).unwrap());
        assert!(!ports.is_empty());
        let bytes = ports.iter().map(|port| port["tx_bytes"].as_u64().unwrap());
        bytes.sum()
    }

    /// Vectors of members that switches have added, all switches together.
    pub(crate) fn added(&self) -> u64 {
        let nodes = self.lab.plan().nodes.iter();
        let switches = nodes.filter(|node| node.role.is_switch());
        let added = switches.map(|switch| {
            let url = ["curl", "-sf", "http://127.0.0.1:9101/metrics"];
            let text = self.lab.host(&switch.name).run(url).unwrap().expect_ok();
            let mut lines = text.lines();
            let count =
                lines.find_map(|it| it.strip_prefix("switchd_compute_contributions_total "));
            // Switches that compute for nobody have no such metric.
            count.map_or(0, |count| count.parse().unwrap())
        });
        added.sum()
    }

    /// What was done since the switches had added `before` vectors went through them, and was never
    /// done without them; where they do not compute they have added nothing.
    pub(crate) fn assert_reduced(&self, before: u64) {
        let added = self.added() - before;
        println!("{}: switches have added {added} vectors", self.lab.name());
        assert_eq!(added > 0, self.lab.options().compute, "{added} vectors");
        for host in self.lab.hosts() {
            let status = self.lab.host(host).run(["hostctl", "status"]).unwrap();
            let status = status.expect_ok();
            assert!(!status.contains("fallbacks from switches"), "{status}");
        }
    }

    /// A program on a host, which finds the installed library and the tree's Python package.
    pub(crate) fn command(&self, host: &str, words: &[String]) -> Command {
        let library = library_folder(self.system.path());
        let mut command = self.lab.host(host).command(words);
        command
            .env("HOSTD_LIBRARY", library.join("libhostd.so.0"))
            .env("LD_LIBRARY_PATH", library)
            .env("PYTHONPATH", root().join("hostd/client/python"))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs a program on the client's host; what it printed.
    pub(crate) fn run_client(&self, words: &[String]) -> String {
        let output = self.command("h1", words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
        text
    }
}

/// A program on the server's host, which is ended with its test.
pub(crate) struct Program {
    process: Child,
    output: BufReader<ChildStdout>,
    first: String,
}

impl Program {
    /// Starts it and waits for its first line.
    pub(crate) fn start(rig: &Rig, words: &[String]) -> Self {
        let mut command = rig.command("h2", words);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        Self {
            process,
            output,
            first,
        }
    }

    /// Starts `words serve 0` and waits until it listens.
    pub(crate) fn serve(rig: &Rig, words: &[String]) -> Self {
        let serve = ["serve", "0"].map(str::to_owned);
        Self::start(rig, &[words, &serve].concat())
    }

    /// The first line.
    pub(crate) fn first(&self) -> &str {
        self.first.trim()
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> &str {
        let port = self.first().strip_prefix("listening on port ");
        port.unwrap_or_else(|| panic!("{}", self.first))
    }

    /// What it printed after its first line, when it has ended well.
    pub(crate) fn end(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How a client takes the server's address.
pub(crate) struct Client {
    /// As `ADDRESS PORT`, and not as `ADDRESS:PORT`.
    pub(crate) apart: bool,
}

impl Client {
    /// Runs `words` with the server's address and one word more; what it printed.
    pub(crate) fn run(&self, rig: &Rig, words: &[String], port: &str, last: &str) -> String {
        let address = rig.server_address();
        let mut words = words.to_vec();
        if self.apart {
            words.extend([address, port.to_owned()]);
        } else {
            words.push(format!("{address}:{port}"));
        }
        words.push(last.to_owned());
        rig.run_client(&words)
    }
}
