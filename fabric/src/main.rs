//! `fabric`: laboratories of network namespaces, and the demonstration.

mod compare;
mod demo;
mod file;
mod interrupts;
mod matrix;
mod mesh;
mod processes;
mod progress;
mod show;
mod train;
mod twin;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};
use common::units::Rate;
use interrupts::Interrupts;
use lab::supervisor::supervise;
use lab::sweep::sweep;
use lab::topology::{Bound, Daemons, Options, Qos};
use lab::{Builder, Lab, LabError, control, run_dir};
use progress::spinner;

/// Leaf–spine fabrics in network namespaces, with switchd on the switches and hostd on the hosts.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Top,
}

#[derive(Debug, Subcommand)]
enum Top {
    /// Make, use and take down a laboratory
    #[command(subcommand)]
    Lab(LabCommand),
    /// Move real files across two-leaf, two-spine fabrics and show what happened
    Demo(demo::Demo),
    /// Probe the ways between real hosts: how long messages take, and which port is the worst
    #[command(subcommand)]
    Mesh(mesh::hosts::Mesh),
    /// Simulate fabrics of any size with the daemons' own engines
    #[command(subcommand)]
    Twin(twin::Twin),
    /// What runs the daemons of a laboratory
    #[command(name = control::SUPERVISE, hide = true)]
    Supervise {
        /// The laboratory
        name: String,
        /// End when standard input ends
        #[arg(long)]
        attached: bool,
    },
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Bring a fabric up
    Up(Up),
    /// Take it down; also removes what a killed one has left
    Down(Named),
    /// All laboratories that are up, or that a killed run has left
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Nodes, daemons and links
    Status {
        #[command(flatten)]
        named: Named,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command on a node
    Exec {
        #[command(flatten)]
        named: Named,
        /// h1, leaf1, spine1 …
        node: String,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Print the log of the daemon on a node
    Logs {
        #[command(flatten)]
        named: Named,
        /// h1, leaf1, spine1 …
        node: String,
        /// Follow it
        #[arg(short, long)]
        follow: bool,
    },
    /// Pull or plug the link between two nodes; routes follow
    Link {
        #[command(flatten)]
        named: Named,
        /// One end
        a: String,
        /// The other, whose interface is set down or up
        b: String,
        /// What to do
        state: LinkState,
    },
    /// Let every host probe every other one: how long messages take, and which port is the worst on
    /// the way
    Mesh(mesh::laboratory::Mesh),
    /// Kill the daemon of a node as a crash would; it is started again
    Kill {
        #[command(flatten)]
        named: Named,
        /// h1, leaf1, spine1 …
        node: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LinkState {
    /// Plug it in
    Up,
    /// Pull it
    Down,
}

#[derive(Debug, Args)]
struct Named {
    /// Name of the laboratory
    #[arg(long, default_value = "fab", env = lab::LAB_VARIABLE)]
    name: String,
}

#[derive(Debug, Args)]
struct Up {
    #[command(flatten)]
    named: Named,
    /// Leaf switches
    #[arg(long, default_value_t = 2, value_parser = |text: &str| Bound::LEAVES.parse(text))]
    leaves: u8,
    /// Spine switches; each has a link to every leaf
    #[arg(long, default_value_t = 2, value_parser = |text: &str| Bound::SPINES.parse(text))]
    spines: u8,
    /// Hosts, spread over the leaves
    #[arg(long, default_value_t = 4, value_parser = |text: &str| Bound::HOSTS.parse(text))]
    hosts: u8,
    /// Speed of every link
    #[arg(long, default_value = "1Gbps")]
    speed: Rate,
    /// Queues of every interface
    #[arg(long, default_value_t = 1, value_parser = |text: &str| Bound::QUEUES.parse(text))]
    queues: u8,
    /// MTU of every link, in bytes
    #[arg(long, default_value_t = 3000)]
    mtu: u32,
    /// What the switches do to packets when there are too many
    #[arg(long, value_enum, default_value_t)]
    qos: Qos,
    /// Let packets tell of congestion (CSIG): `fabric lab mesh` and hostctl csig show it
    #[arg(long)]
    csig: bool,
    /// Let switches compute for jobs: `hostallreduce --algorithm inc`, `switchctl inc jobs`. Not
    /// with --l2, where switches have no address to be asked at
    #[arg(long)]
    compute: bool,
    /// Put all hosts in one network: the switches' ports are in bridges, and nothing is routed
    #[arg(long)]
    l2: bool,
    /// With --l2: deal the hosts of each leaf out to this many VLANs (10, 20, …); only hosts of one
    /// VLAN reach each other. Needs a kernel with CONFIG_BRIDGE_VLAN_FILTERING
    #[arg(long, value_name = "N", requires = "l2", value_parser = |text: &str| Bound::VLANS.parse(text))]
    vlans: Option<u8>,
    /// Lead the link between two nodes through a bridge on which tcpdump sees it (leaf1:spine1)
    #[arg(long, value_name = "A:B", value_parser = pair)]
    tap: Vec<(String, String)>,
    /// Let the Linux kernel forward instead of switchd, for comparison
    #[arg(long, conflicts_with = "no_daemons")]
    kernel_routers: bool,
    /// Start no daemon; configuration files are written, so they can be started by hand
    #[arg(long)]
    no_daemons: bool,
    /// Stay, and take the fabric down at the end (Ctrl-C)
    #[arg(long)]
    foreground: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (a, b) = text
        .split_once(':')
        .ok_or("two nodes separated by a colon")?;
    Ok((a.to_owned(), b.to_owned()))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fabric: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Top) -> Result<ExitCode, LabError> {
    match command {
        Top::Lab(LabCommand::Up(up)) => bring_up(up)?,
        Top::Lab(LabCommand::Down(named)) => {
            let was_there = run_dir(&named.name).exists();
            sweep(&named.name)?;
            let what = if was_there { "is down" } else { "was not up" };
            println!("laboratory '{}' {what}", named.name);
        }
        Top::Lab(LabCommand::List { json }) => {
            common::sys::end_quietly_on_broken_pipe();
            show::list(&Lab::all()?, json);
        }
        Top::Lab(LabCommand::Status { named, json }) => {
            common::sys::end_quietly_on_broken_pipe();
            let lab = Lab::open(&named.name)?;
            if json {
                show::status_json(&lab)
            } else {
                show::status(&lab)
            }
        }
        Top::Lab(LabCommand::Exec {
            named,
            node,
            command,
        }) => {
            // Replaces this process, so keys and the exit status are the command's own.
            let error = Lab::open(&named.name)?.node(&node)?.command(command).exec();
            return Err(LabError::Io {
                what: format!("a command on {node}"),
                source: error,
            });
        }
        Top::Lab(LabCommand::Logs {
            named,
            node,
            follow,
        }) => {
            common::sys::end_quietly_on_broken_pipe();
            return logs(&named.name, &node, follow);
        }
        Top::Lab(LabCommand::Link { named, a, b, state }) => {
            let mut lab = Lab::open(&named.name)?;
            match state {
                LinkState::Up => lab.link_up(&a, &b)?,
                LinkState::Down => lab.link_down(&a, &b)?,
            }
        }
        Top::Lab(LabCommand::Mesh(mesh)) => mesh.run()?,
        Top::Lab(LabCommand::Kill { named, node }) => Lab::open(&named.name)?.kill(&node)?,
        Top::Demo(demo) => return demo.run(),
        Top::Mesh(mesh) => mesh.run()?,
        Top::Twin(twin) => return Ok(twin.run()),
        Top::Supervise { name, attached } => supervise(&name, attached)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn bring_up(up: Up) -> Result<(), LabError> {
    let daemons = match (up.kernel_routers, up.no_daemons) {
        (true, _) => Daemons::KernelRouters,
        (_, true) => Daemons::Nothing,
        _ => Daemons::All,
    };
    let options = Options {
        name: up.named.name,
        leaves: up.leaves,
        spines: up.spines,
        hosts: up.hosts,
        speed: up.speed.bps(),
        queues: up.queues,
        mtu: up.mtu,
        daemons,
        qos: up.qos,
        csig: up.csig,
        compute: up.compute,
        l2: up.l2,
        vlans: up.vlans.unwrap_or(0),
        taps: up.tap,
        ..Options::default()
    };
    let name = options.name.clone();
    let interrupts = Interrupts::watch(&[&name])?;
    let bar = spinner();
    let mut builder = Builder::new(options);
    if !up.foreground {
        builder = builder.detached();
    }
    let lab = interrupts.make(builder, &bar);
    bar.finish_and_clear();
    let lab = lab?;
    // It is up: whoever reads this may stop reading.
    common::sys::end_quietly_on_broken_pipe();
    show::status(&lab);
    let flag = if name == "fab" {
        String::new()
    } else {
        format!(" --name {name}")
    };
    println!();
    for (number, hint) in show::hints(&lab).iter().enumerate() {
        let label = if number == 0 { "Try:" } else { "" };
        println!("{label:6}fabric lab exec{flag} {hint}");
    }
    if up.foreground {
        println!("Ctrl-C takes it down.");
        interrupts.expect();
        loop {
            std::thread::park();
        }
    }
    println!("      fabric lab down{flag}");
    Ok(())
}

fn logs(name: &str, node: &str, follow: bool) -> Result<ExitCode, LabError> {
    let file = Lab::open(name)?.daemon_log(node)?;
    let mut command = Command::new("tail");
    command.args(["-n", "+1"]);
    if follow {
        command.arg("-F");
    }
    let error = command.arg(file).exec();
    Err(LabError::Io {
        what: "tail".to_owned(),
        source: error,
    })
}
