//! A laboratory that is up: the handle of tests and of the `fabric` command.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::capture::Capture;
use super::command::installed;
use super::control::{DaemonStatus, Request, SUPERVISE, ask};
use super::lossless::untold;
use super::settings::{State, binary};
use super::supervisor::log_tail;
use super::sweep::{strangers, supervisor, sweep};
use super::topology::{Congestion, Daemons, NodeRole, Options, Qos, Topology};
use super::{Host, LabError, Progress, RUN, node_dir, run_dir, settings, wiring};
use switchd::control::api::{Answer, Topic};

/// Longest time from the start of a daemon until it forwards.
const READY_TIME: Duration = Duration::from_secs(120);

/// Longest time until daemons that run have told each other of themselves, which they do once a
/// second, and heed what they heard, which they do once in ten.
const TOLD_TIME: Duration = Duration::from_secs(60);

/// Longest time until a supervisor listens.
const SUPERVISOR_TIME: Duration = Duration::from_secs(60);

/// What a laboratory needs on the machine.
const TOOLS: &[&str] = &["ip", "tc", "ethtool", "sysctl", "setpriv", "unshare"];

/// How to make a laboratory.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    options: Options,
    detached: bool,
}

impl Builder {
    /// With these options.
    #[must_use]
    pub fn new(options: Options) -> Builder {
        Builder {
            options,
            detached: false,
        }
    }

    /// Its name; another laboratory of that name must not be up.
    #[must_use]
    pub fn name(mut self, name: &str) -> Builder {
        name.clone_into(&mut self.options.name);
        self
    }

    /// How many switches and hosts.
    #[must_use]
    pub fn size(mut self, leaves: u8, spines: u8, hosts: u8) -> Builder {
        self.options = Options {
            leaves,
            spines,
            hosts,
            ..self.options
        };
        self
    }

    /// Speed of the links in bits per second.
    #[must_use]
    pub fn speed(mut self, speed: u64) -> Builder {
        self.options.speed = speed;
        self
    }

    /// Queues of every interface.
    #[must_use]
    pub fn queues(mut self, queues: u8) -> Builder {
        self.options.queues = queues;
        self
    }

    /// MTU of the links.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Builder {
        self.options.mtu = mtu;
        self
    }

    /// How hosts answer to congestion.
    #[must_use]
    pub fn congestion(mut self, congestion: Congestion) -> Builder {
        self.options.congestion = congestion;
        self
    }

    /// What the traffic managers of switches do.
    #[must_use]
    pub fn qos(mut self, qos: Qos) -> Builder {
        self.options.qos = qos;
        self
    }

    /// Packets of hosts have congestion signals, and switches write them.
    #[must_use]
    pub fn csig(mut self) -> Builder {
        self.options.csig = true;
        self
    }

    /// Switches compute for jobs, and hosts ask their leaf to.
    #[must_use]
    pub fn compute(mut self) -> Builder {
        self.options.compute = true;
        self
    }

    /// Which daemons run.
    #[must_use]
    pub fn daemons(mut self, daemons: Daemons) -> Builder {
        self.options.daemons = daemons;
        self
    }

    /// All hosts in one network, by bridges.
    #[must_use]
    pub fn l2(mut self) -> Builder {
        self.options.l2 = true;
        self
    }

    /// All hosts in one network, dealt out to so many VLANs.
    #[must_use]
    pub fn vlans(mut self, vlans: u8) -> Builder {
        self.options.vlans = vlans;
        self.l2()
    }

    /// Leads the link between two nodes through a tap, for [`Lab::capture`].
    #[must_use]
    pub fn tap(mut self, a: &str, b: &str) -> Builder {
        self.options.taps.push((a.to_owned(), b.to_owned()));
        self
    }

    /// Lets the laboratory outlive this process.
    #[must_use]
    pub fn detached(mut self) -> Builder {
        self.detached = true;
        self
    }

    /// Brings the laboratory up.
    ///
    /// # Errors
    /// As [`Builder::up_with`].
    pub fn up(self) -> Result<Lab, LabError> {
        self.up_with(&mut |_| Ok(()))
    }

    /// Brings the laboratory up, telling `progress` each step. Returns when every daemon forwards.
    ///
    /// # Errors
    /// Any [`LabError`]; what was made until then is taken down.
    pub fn up_with(self, progress: &mut Progress<'_>) -> Result<Lab, LabError> {
        self.options.check()?;
        if !nix::unistd::geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        if let Some(tool) = TOOLS.iter().find(|tool| !installed(tool)) {
            return Err(LabError::MissingTool((*tool).to_owned()));
        }
        wiring::check_bridges(&self.options)?;
        let name = self.options.name.clone();
        if supervisor(&name).is_some() {
            return Err(LabError::Exists(name));
        }
        let strange = strangers(&name)?;
        if !strange.is_empty() {
            return Err(LabError::Strangers {
                name,
                namespaces: strange.join(", "),
            });
        }
        progress("what an earlier laboratory has left")?;
        sweep(&name)?;
        let made = self.make(progress);
        if made.is_err() {
            // The first error is the one to report.
            let _ = sweep(&name);
        }
        made
    }

    fn make(self, progress: &mut Progress<'_>) -> Result<Lab, LabError> {
        let Builder { options, detached } = self;
        let state = State {
            options,
            down: std::collections::BTreeSet::new(),
        };
        let plan = state.plan();
        let folder = run_dir(&state.options.name);
        fs::create_dir_all(&folder).map_err(LabError::io(folder.display().to_string()))?;
        state.save()?;
        for node in &plan.nodes {
            if let Some(program) = node.program(state.options.daemons) {
                binary(program)?;
            }
        }
        wiring::build(&state.options, &plan, progress)?;
        settings::write(&state.options, &plan)?;
        progress("daemons")?;
        let process = start_supervisor(&state.options.name, detached)?;
        let lab = Lab {
            state,
            plan,
            process: Some(process),
            detached,
        };
        lab.wait_until_ready(READY_TIME, progress)?;
        let options = &lab.state.options;
        if (options.qos, options.daemons) == (Qos::Lossless, Daemons::All) {
            lab.wait_until_told(progress)?;
        }
        Ok(lab)
    }
}

fn start_supervisor(name: &str, detached: bool) -> Result<Child, LabError> {
    let log_path = run_dir(name).join("supervisor.log");
    let log = || File::create(&log_path).map_err(LabError::io(log_path.display().to_string()));
    let mut command = Command::new(binary("fabric")?);
    command.args([SUPERVISE, name]);
    if !detached {
        command.arg("--attached");
    }
    let mut process = command
        .stdin(if detached {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(log()?)
        .stderr(log()?)
        .spawn()
        .map_err(LabError::io("supervisor"))?;
    let deadline = Instant::now() + SUPERVISOR_TIME;
    while ask(name, &Request::Status).is_err() {
        let ended = process.try_wait().map_err(LabError::io("supervisor"))?;
        if ended.is_some() || Instant::now() > deadline {
            let _ = process.kill();
            let _ = process.wait();
            return Err(LabError::Timeout {
                what: "the supervisor does not answer".to_owned(),
                seconds: SUPERVISOR_TIME.as_secs(),
                hint: hint(&log_path),
            });
        }
        sleep(Duration::from_millis(20));
    }
    Ok(process)
}

fn hint(log: &std::path::Path) -> String {
    match log_tail(log, 8).as_str() {
        "" => String::new(),
        tail => format!("; the end of {}:\n{tail}", log.display()),
    }
}

/// A laboratory that is up. Dropped, it is taken down, unless it was made detached.
#[derive(Debug)]
pub struct Lab {
    state: State,
    plan: Topology,
    process: Option<Child>,
    detached: bool,
}

impl Lab {
    /// Starts to describe a laboratory.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The laboratory `name` that another process has brought up. It stays up when this handle
    /// goes.
    ///
    /// # Errors
    /// [`LabError::Absent`].
    pub fn open(name: &str) -> Result<Lab, LabError> {
        let state = State::load(name)?;
        let plan = state.plan();
        Ok(Lab {
            state,
            plan,
            process: None,
            detached: true,
        })
    }

    /// All laboratories that are up, or that a killed run has left, by name.
    ///
    /// # Errors
    /// When the folder of laboratories cannot be read, or a laboratory's plan: it is of another
    /// version.
    pub fn all() -> Result<Vec<Lab>, LabError> {
        let entries = match fs::read_dir(RUN) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(LabError::io(RUN))?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry.map_err(LabError::io(RUN))?.file_name();
            match Self::open(&name.to_string_lossy()) {
                // Files of others, and folders of laboratories that go just now.
                Err(LabError::Absent(_)) => {}
                lab => all.push(lab?),
            }
        }
        all.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(all)
    }

    /// Whether its supervisor runs. Otherwise a killed run has left it.
    #[must_use]
    pub fn is_up(&self) -> bool {
        supervisor(self.name()).is_some()
    }

    /// Its plan.
    #[must_use]
    pub fn plan(&self) -> &Topology {
        &self.plan
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.state.options
    }

    /// Links that were pulled.
    #[must_use]
    pub fn links_down(&self) -> &std::collections::BTreeSet<(String, String)> {
        &self.state.down
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.options.name
    }

    /// A node, to run commands on.
    ///
    /// # Errors
    /// [`LabError::NoNode`].
    pub fn node(&self, node: &str) -> Result<Host<'_>, LabError> {
        let node = self.plan.known(node)?;
        Ok(Host {
            lab: self.name(),
            plan: &self.plan,
            name: &node.name,
        })
    }

    /// [`Lab::node`] for tests, where a wrong name is a mistake in the test.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn host(&self, node: &str) -> Host<'_> {
        self.node(node).unwrap_or_else(|error| panic!("{error}"))
    }

    /// State of every daemon.
    ///
    /// # Errors
    /// When the supervisor does not answer.
    pub fn daemons(&self) -> Result<Vec<DaemonStatus>, LabError> {
        ask(self.name(), &Request::Status)
    }

    /// Waits until every daemon has said that it forwards.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the end of the log of one that has not.
    pub fn wait_ready(&self, limit: Duration) -> Result<(), LabError> {
        self.wait_until_ready(limit, &mut |_| Ok(()))
    }

    fn wait_until_ready(
        &self,
        limit: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + limit;
        loop {
            let daemons = self.daemons()?;
            let Some(late) = daemons.iter().find(|daemon| !daemon.ready) else {
                return Ok(());
            };
            progress(&format!("{} on {} gets ready", late.program, late.node))?;
            if Instant::now() > deadline || late.restarts > 2 {
                let exit = late
                    .last_exit
                    .as_ref()
                    .map(|e| format!(" ({e})"))
                    .unwrap_or_default();
                let log = self.log(&late.node, &late.program);
                return Err(LabError::Timeout {
                    what: format!("{} on {} is not ready{exit}", late.program, late.node),
                    seconds: limit.as_secs(),
                    hint: hint(&log),
                });
            }
            sleep(Duration::from_millis(25));
        }
    }

    /// Waits until each switch plans headroom with what its peers tell of pauses. Until then it has
    /// less than a lossless class needs.
    fn wait_until_told(&self, progress: &mut Progress<'_>) -> Result<(), LabError> {
        let deadline = Instant::now() + TOLD_TIME;
        for node in self.plan.nodes.iter().filter(|node| node.role.is_switch()) {
            let switch = self.node(&node.name)?;
            while let Answer::Headroom(rows) = switch.show(Topic::Headroom)?
                && let Some((port, origin)) = untold(&rows)
            {
                let of = format!("at port {port} of {}", node.name);
                progress(&format!("what follows a pause {of} is told"))?;
                if Instant::now() > deadline {
                    return Err(LabError::Timeout {
                        what: format!("headroom {of} is not planned with what its peer tells"),
                        seconds: TOLD_TIME.as_secs(),
                        hint: format!(", but with {origin}"),
                    });
                }
                sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// The log of the daemon on `node`.
    ///
    /// # Errors
    /// [`LabError::NoNode`]; [`LabError::NoLog`] if no daemon has written one.
    pub fn daemon_log(&self, node: &str) -> Result<PathBuf, LabError> {
        let node = self.plan.known(node)?;
        let program = node.role.program();
        let file = self.log(&node.name, program);
        if file.is_file() {
            return Ok(file);
        }
        let reason = match node.program(self.options().daemons) {
            None => format!("this laboratory was brought up without {program}"),
            Some(_) => format!("{program} was never started"),
        };
        Err(LabError::NoLog {
            node: node.name.clone(),
            file,
            reason,
        })
    }

    /// The log of `program` on `node`.
    #[must_use]
    pub fn log(&self, node: &str, program: &str) -> PathBuf {
        node_dir(self.name(), node).join(format!("{program}.log"))
    }

    /// Pulls the link between two nodes, and lets the routes follow as a routing protocol would.
    /// `b`'s end is set down; `a` sees its carrier go.
    ///
    /// # Errors
    /// Those of [`Topology::link`]; [`LabError::Command`].
    pub fn link_down(&mut self, a: &str, b: &str) -> Result<(), LabError> {
        self.pull(a, b)?;
        self.converge()
    }

    /// Plugs the link in again, with its routes.
    ///
    /// # Errors
    /// As [`Lab::link_down`].
    pub fn link_up(&mut self, a: &str, b: &str) -> Result<(), LabError> {
        self.set_link(a, b, true)?;
        self.converge()
    }

    /// Pulls the link and leaves the routes as they are: what happens before a protocol has
    /// noticed.
    ///
    /// # Errors
    /// As [`Lab::link_down`].
    pub fn pull(&mut self, a: &str, b: &str) -> Result<(), LabError> {
        self.set_link(a, b, false)
    }

    fn set_link(&mut self, a: &str, b: &str, up: bool) -> Result<(), LabError> {
        wiring::set_link(&self.state.options, &self.plan, a, b, up)?;
        let (first, second) = (a.to_owned(), b.to_owned());
        if up {
            self.state.down.remove(&(second.clone(), first.clone()));
            self.state.down.remove(&(first, second));
        } else {
            self.state.down.insert((first, second));
        }
        self.state.save()
    }

    /// Gives every node the routes that fit the links that are up.
    ///
    /// # Errors
    /// [`LabError::Command`].
    pub fn converge(&self) -> Result<(), LabError> {
        for node in self.plan.nodes.iter().filter(|node| node.role.is_switch()) {
            wiring::install_routes(&self.state.options, &self.plan, node, &self.state.down)?;
        }
        Ok(())
    }

    /// Ends a daemon as a crash would (SIGKILL). Its supervisor starts it again.
    ///
    /// # Errors
    /// When no daemon runs there.
    pub fn kill(&self, node: &str) -> Result<(), LabError> {
        ask(self.name(), &Request::Kill(node.to_owned())).map(drop)
    }

    /// Ends a daemon in order; it stays down until [`Lab::start`].
    ///
    /// # Errors
    /// When no daemon runs there.
    pub fn stop(&self, node: &str) -> Result<(), LabError> {
        ask(self.name(), &Request::Stop(node.to_owned())).map(drop)
    }

    /// Starts a daemon that was stopped and waits until it forwards.
    ///
    /// # Errors
    /// When no daemon runs there, or it does not get ready.
    pub fn start(&self, node: &str) -> Result<(), LabError> {
        ask(self.name(), &Request::Start(node.to_owned()))?;
        self.wait_ready(READY_TIME)
    }

    /// [`Lab::stop`] and [`Lab::start`].
    ///
    /// # Errors
    /// As these.
    pub fn restart(&self, node: &str) -> Result<(), LabError> {
        self.stop(node)?;
        self.start(node)
    }

    /// Runs `switchctl --json` on a switch.
    ///
    /// # Errors
    /// When it fails or prints something other than JSON.
    pub fn switchctl(&self, node: &str, words: &[&str]) -> Result<serde_json::Value, LabError> {
        self.ask_tool("switchctl", node, words)
    }

    /// Runs `hostctl --json` on a host.
    ///
    /// # Errors
    /// As [`Lab::switchctl`].
    pub fn hostctl(&self, node: &str, words: &[&str]) -> Result<serde_json::Value, LabError> {
        self.ask_tool("hostctl", node, words)
    }

    fn ask_tool(
        &self,
        tool: &str,
        node: &str,
        words: &[&str],
    ) -> Result<serde_json::Value, LabError> {
        let output = self.node(node)?.run([&[tool, "--json"], words].concat())?;
        let command = format!("{tool} {} on {node}", words.join(" "));
        if !output.ok() {
            return Err(LabError::Command {
                command,
                reason: output.stderr,
            });
        }
        serde_json::from_str(&output.stdout).map_err(|error| LabError::Answer {
            what: command,
            reason: error.to_string(),
        })
    }

    /// Starts to capture on the link between two nodes, which must have a tap.
    ///
    /// # Errors
    /// When the link has no tap or tcpdump cannot run.
    pub fn capture(&self, a: &str, b: &str, filter: &str) -> Result<Capture, LabError> {
        let tap =
            wiring::tap_between(&self.state.options, a, b).ok_or_else(|| LabError::BadOption {
                option: "--tap",
                reason: format!("no tap between {a} and {b}"),
            })?;
        Capture::start(self.name(), &tap, filter)
    }

    /// Names of the hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<&str> {
        self.plan.names(NodeRole::Host).collect()
    }

    /// Takes the laboratory down now, even if another process brought it up.
    ///
    /// # Errors
    /// As [`sweep`].
    pub fn down(mut self) -> Result<(), LabError> {
        self.detached = true;
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), LabError> {
        let result = sweep(&self.state.options.name);
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            // Swept: it has ended.
            let _ = process.wait();
        }
        result
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.detached
            && let Err(error) = self.take_down()
        {
            eprintln!("laboratory '{}' is not down: {error}", self.name());
        }
    }
}
