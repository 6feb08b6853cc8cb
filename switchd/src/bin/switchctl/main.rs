//! switchctl: asks a running switchd.
//!
//! Answers go to standard output as tables, or as JSON with `--json`; errors to standard error.
//! Exit status: 0 done, 1 error, 2 wrong usage, 4 the switch has a problem (`status`), or the
//! watchdog sees a storm or has turned PFC off (`pfcwd`).

mod tables;

use clap::{Args, Parser, Subcommand};
use common::admin::client::Daemon;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use switchd::control::api::{
    Answer, CreateJobRequest, HoldRequest, Request, Response, ShowRequest, Topic, TraceReport,
    TraceRequest, WantedRoutes,
};

const DAEMON: Daemon = Daemon {
    name: "switchd",
    variable: "SWITCHCTL_SOCKET",
};

/// How long to wait for an answer: longer than the daemon takes for any request but a trace.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Exit status when the switch has a problem, or its watchdog knows of one.
const DEGRADED: u8 = 4;

/// What scripts may rely on.
const STATUS_HELP: &str = "\
Exit status: 0 done, 1 error, 2 wrong usage, 4 the switch has a problem (`status`), or the
watchdog sees a storm or has turned PFC off (`pfcwd`).";

/// Ask a running switchd.
#[derive(Debug, Parser)]
#[command(version, about, after_help = STATUS_HELP)]
struct Arguments {
    /// Admin socket of the daemon
    #[arg(
        long,
        global = true,
        env = DAEMON.variable,
        default_value = "/run/switchd/admin.sock"
    )]
    socket: PathBuf,
    /// Answer in JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Direct(What),
    /// Show something (the word may be left out)
    #[command(subcommand)]
    Show(What),
    /// Clear something
    #[command(subcommand)]
    Clear(Cleared),
    /// Send nothing from an egress queue, for tests and repairs
    Hold(Held),
    /// Read the configuration again and apply what changed; exit status 1 if it is refused
    Reload,
    /// Follow packets through the switch: what each stage decided, and why packets were dropped
    #[command(after_help = FILTER_HELP)]
    Trace(Traces),
    /// Jobs of in-network compute
    #[command(subcommand)]
    Inc(Inc),
}

#[derive(Debug, Subcommand)]
enum Inc {
    /// Jobs that form, run, or were over a moment ago
    Jobs,
    /// Reserve what a job needs: a place, and memory that no other job gets. Its members join as
    /// always; one that wants more than was reserved is refused. It ends if none comes in time
    Create(Create),
    /// End a job: all its members get an error
    Delete {
        /// Its number
        job: u32,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// The number that its members will name
    job: u32,
    /// Members at this switch, 1 to 64; of a spine its leaves
    #[arg(long)]
    members: u16,
    /// Slots, 1 to 32768; fewer are granted if there is no memory for so many
    #[arg(long, default_value_t = 256)]
    slots: u16,
    /// Most bytes of a vector in a chunk, a multiple of 8 up to 1400
    #[arg(long, default_value_t = 1400)]
    payload: u16,
    /// Operations that members may want, all if none is named: sum, product, min, max, and, or, xor
    #[arg(long, value_delimiter = ',')]
    operations: Vec<String>,
    /// Types that members may want, all if none is named: i32, i64, u32, u64, f16, bf16, f32, f64
    #[arg(long, value_delimiter = ',')]
    types: Vec<String>,
    /// Members may want floats added in the order of the ranks, which takes more memory
    #[arg(long)]
    deterministic: bool,
    /// Switches above that members may want, of those that this switch is configured with
    #[arg(long, default_value_t = 0)]
    trees: u16,
    /// Seconds in which the first member must come, up to a day
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    lease: u32,
}

impl Inc {
    fn request(&self) -> Request {
        match self {
            Self::Jobs => Request::Show(ShowRequest {
                topic: Topic::Jobs,
                prefix: None,
                names: Vec::new(),
                limit: None,
            }),
            Self::Create(create) => Request::CreateJob(CreateJobRequest {
                job: create.job,
                members: create.members,
                slots: create.slots,
                payload: create.payload,
                operations: create.operations.clone(),
                types: create.types.clone(),
                deterministic: create.deterministic,
                trees: create.trees,
                lease_seconds: create.lease,
            }),
            Self::Delete { job } => Request::DeleteJob { job: *job },
        }
    }
}

#[derive(Debug, Args)]
struct Traces {
    /// Which packets, as conditions that all must hold; without one every packet
    #[arg(value_name = "WORD")]
    filter: Vec<String>,
    /// End after this time if fewer packets than `count` were found (more than 0, at most 600)
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Also write the packets to this pcapng file, with their steps as comments
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

/// The words of a filter.
const FILTER_HELP: &str = "\
Words:
  in=PORT out=PORT       the port it arrives at; the port it leaves by, or would have left by
  src=NET dst=NET        an address or a prefix
  proto=NAME             tcp, udp, icmp, icmp6, sctp, or a number
  sport=N dport=N        port of the upper layer
  dscp=N priority=N      code point; priority that it is received with
  qp=N                   destination queue pair of RoCEv2
  drop, drop=REASON,...  only packets that were lost, for any reason or for one of these (see `switchctl drops`)
  every=N                only every Nth that matches
  count=N                end after this many packets (default 100, at most 10000)

A line for each stage begins with the time since the packet arrived. A worker reads the clock once in a
turn, so stages of one turn show +0 ns; a packet that waits in a queue, or for another worker, shows how long.

Examples:
  switchctl trace in=swp1 dst=10.2.0.0/16 dport=4791 count=5
  switchctl trace drop --seconds 60 --pcap drops.pcapng";

#[derive(Debug, Subcommand)]
enum Watchdog {
    /// Turn PFC on again where the watchdog has turned it off
    Enable {
        /// Port
        port: String,
        /// Priority (0 to 7)
        priority: u8,
    },
}

#[derive(Debug, Args)]
struct Held {
    /// Port
    port: String,
    /// Queue (0 to 7)
    queue: u8,
    /// Release it
    #[arg(long)]
    release: bool,
}

/// What can be shown. Each plural is understood in the singular, too.
#[derive(Debug, Subcommand)]
enum What {
    /// Whether all is well; exit status 4 if not
    Status,
    /// Ports with their counters
    #[command(alias = "port")]
    Ports {
        /// Only these; all without a name
        #[arg(value_name = "PORT")]
        names: Vec<String>,
    },
    /// Egress queues that hold or held packets
    #[command(alias = "queue")]
    Queues {
        /// Also queues that were never used
        #[arg(long)]
        all: bool,
    },
    /// Routes as they are programmed
    #[command(alias = "route")]
    Routes(Routes),
    /// Next hops with their MAC addresses
    #[command(alias = "nexthop")]
    Nexthops,
    /// Groups of next hops, and the share of each
    Ecmp,
    /// Flows in the tables of dynamic load balancing
    #[command(alias = "flowlet")]
    Flowlets(Rows),
    /// Lost packets by port and reason
    #[command(alias = "drop")]
    Drops,
    /// Worker threads
    #[command(alias = "worker")]
    Workers {
        /// Only those of these numbers; all without one
        #[arg(value_name = "NUMBER")]
        numbers: Vec<usize>,
    },
    /// Neighbours as the kernel knows them
    #[command(alias = "neighbour")]
    Neighbours,
    /// The buffer, by region and by port
    Buffer,
    /// Priority groups that are lossless or were used
    Pg {
        /// Also those that are plain and were never used
        #[arg(long)]
        all: bool,
    },
    /// What computed headroom is made of
    Headroom,
    /// PFC and PAUSE of ports and priorities that take part
    #[command(aliases = ["pause", "pauses"])]
    Pfc {
        /// Also priorities that do not
        #[arg(long)]
        all: bool,
    },
    /// The watchdog of endless pauses; exit status 4 while there is a storm or PFC is off
    Pfcwd {
        #[command(subcommand)]
        action: Option<Watchdog>,
    },
    /// Flows that were moved to lower queues, those that sent most first
    #[command(alias = "elephant")]
    Elephants,
    /// The configuration in force as TOML, with the place that set each key, and what follows from
    /// it for the ports
    #[command(alias = "configuration")]
    Config,
    /// Ports that belong to bridges of the kernel, with their VLANs and spanning tree states
    #[command(alias = "bridges")]
    Bridge,
    /// Stations that these bridges know, as `bridge fdb` has them, and who forwards to them
    #[command(aliases = ["stations", "station"])]
    Fdb(Rows),
    /// What ports have available, as they write it in CSIG tags, and what became of tags
    Csig,
    /// What ports write as telemetry into INT tags, and what became of tags
    Int,
    /// Who spreads packets over paths: ports, or the hosts and switches behind them
    #[command(alias = "scheduler")]
    Schedulers,
    /// RoCEv2 flows, those that sent most first
    #[command(alias = "flow")]
    Flows(Rows),
    /// Flows that get congestion notifications of their receiver, and how many the switch made
    Iqcn(Rows),
    /// Marking thresholds of queues that follow the traffic: what they are, what the traffic is
    /// like, and what changed last
    Aiecn,
    /// The last events
    #[command(alias = "event")]
    Events {
        /// The most events to show, counted from the last
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
}

#[derive(Debug, Args)]
struct Rows {
    /// The most rows to show
    #[arg(long, default_value_t = 1000)]
    limit: usize,
}

#[derive(Debug, Args)]
struct Routes {
    /// Only routes inside this prefix, or those that cover this address (the first decides)
    prefix: Option<WantedRoutes>,
    /// What is left to the kernel to forward instead, and why
    #[arg(long)]
    punted: bool,
    /// The most routes to show, the lowest prefixes first (100000 at most)
    #[arg(long, default_value_t = 1000)]
    limit: usize,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Cleared {
    /// Show counters from now on (Prometheus counts on)
    Counters,
    /// Clear watermarks and the workers' longest gaps
    Watermarks,
}

impl What {
    fn shows_all(&self) -> bool {
        matches!(
            self,
            Self::Queues { all: true } | Self::Pg { all: true } | Self::Pfc { all: true }
        )
    }

    fn request(&self) -> Request {
        let (topic, prefix, limit) = match self {
            Self::Status => (Topic::Status, None, None),
            Self::Ports { .. } => (Topic::Ports, None, None),
            Self::Queues { .. } => (Topic::Queues, None, None),
            Self::Routes(routes) => {
                let topic = if routes.punted {
                    Topic::Punted
                } else {
                    Topic::Routes
                };
                (topic, routes.prefix, Some(routes.limit))
            }
            Self::Nexthops => (Topic::Nexthops, None, None),
            Self::Ecmp => (Topic::Ecmp, None, None),
            Self::Flowlets(rows) => (Topic::Flowlets, None, Some(rows.limit)),
            Self::Drops => (Topic::Drops, None, None),
            Self::Workers { .. } => (Topic::Workers, None, None),
            Self::Neighbours => (Topic::Neighbours, None, None),
            Self::Buffer => (Topic::Buffer, None, None),
            Self::Pg { .. } => (Topic::Pg, None, None),
            Self::Headroom => (Topic::Headroom, None, None),
            Self::Pfc { .. } => (Topic::Pfc, None, None),
            Self::Pfcwd { action: None } => (Topic::Pfcwd, None, None),
            Self::Pfcwd {
                action: Some(Watchdog::Enable { port, priority }),
            } => {
                return Request::EnablePfc {
                    port: port.clone(),
                    priority: *priority,
                };
            }
            Self::Events { limit } => (Topic::Events, None, Some(*limit)),
            Self::Elephants => (Topic::Elephants, None, None),
            Self::Config => (Topic::Config, None, None),
            Self::Bridge => (Topic::Bridge, None, None),
            Self::Csig => (Topic::Csig, None, None),
            Self::Int => (Topic::Int, None, None),
            Self::Schedulers => (Topic::Schedulers, None, None),
            Self::Flows(rows) => (Topic::Flows, None, Some(rows.limit)),
            Self::Iqcn(rows) => (Topic::Iqcn, None, Some(rows.limit)),
            Self::Aiecn => (Topic::Aiecn, None, None),
            Self::Fdb(rows) => (Topic::Fdb, None, Some(rows.limit)),
        };
        let names = match self {
            Self::Ports { names } => names.clone(),
            Self::Workers { numbers } => numbers.iter().map(usize::to_string).collect(),
            _ => Vec::new(),
        };
        Request::Show(ShowRequest {
            topic,
            prefix,
            names,
            limit,
        })
    }
}

fn main() -> ExitCode {
    common::sys::end_quietly_on_broken_pipe();
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("switchctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let request = match &arguments.command {
        Command::Direct(what) | Command::Show(what) => what.request(),
        Command::Clear(Cleared::Counters) => Request::ClearCounters,
        Command::Clear(Cleared::Watermarks) => Request::ClearWatermarks,
        Command::Hold(held) => Request::Hold(HoldRequest {
            port: held.port.clone(),
            queue: held.queue,
            release: held.release,
        }),
        Command::Reload => Request::Reload,
        Command::Trace(traces) => traces.request()?,
        Command::Inc(inc) => inc.request(),
    };
    let pcap = match &arguments.command {
        Command::Trace(traces) => traces.pcap.as_ref(),
        _ => None,
    };
    let mut answer = match ask(arguments, &request)? {
        Response::Ok(answer) => answer,
        Response::Error(reason) => return Err(reason),
    };
    if let (Answer::Trace(traced), Some(path)) = (&mut answer, pcap) {
        write_pcap(traced, path)?;
    }
    let show_all = match &arguments.command {
        Command::Direct(what) | Command::Show(what) => what.shows_all(),
        _ => false,
    };
    let text = if arguments.json {
        tables::json(&answer)?
    } else {
        tables::text(&answer, show_all)
    };
    // A reader that has seen enough (head) is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if let (Answer::Routes(rows), Request::Show(show)) = (&answer, &request)
        && show.limit.is_some_and(|limit| rows.len() >= limit)
    {
        eprintln!(
            "the first {} routes; there may be more (--limit, or a prefix to look inside)",
            rows.len()
        );
    }
    Ok(match &answer {
        Answer::Status(status) if !status.healthy => ExitCode::from(DEGRADED),
        Answer::Pfcwd(rows) if rows.iter().any(|row| row.state != "operational") => {
            ExitCode::from(DEGRADED)
        }
        _ => ExitCode::SUCCESS,
    })
}

impl Traces {
    fn request(&self) -> Result<Request, String> {
        let wait = Duration::try_from_secs_f64(self.seconds)
            .map_err(|error| format!("--seconds {}: {error}", self.seconds))?;
        Ok(Request::Trace(TraceRequest {
            filter: self.filter.join(" "),
            wait_milliseconds: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            pcap: self.pcap.is_some(),
        }))
    }
}

/// Writes the packets as a file for Wireshark, which is not shown then.
fn write_pcap(traced: &mut TraceReport, path: &std::path::Path) -> Result<(), String> {
    let text = traced.pcap.take().unwrap_or_default();
    let bytes: Result<Vec<u8>, String> = text
        .as_bytes()
        .chunks(2)
        .map(|digits| {
            let digits = std::str::from_utf8(digits).map_err(|error| error.to_string())?;
            u8::from_str_radix(digits, 16).map_err(|error| error.to_string())
        })
        .collect();
    std::fs::write(path, bytes?).map_err(|error| format!("{}: {error}", path.display()))
}

fn ask(arguments: &Arguments, request: &Request) -> Result<Response, String> {
    let timeout = match request {
        Request::Trace(trace) => TIMEOUT + Duration::from_millis(trace.wait_milliseconds),
        _ => TIMEOUT,
    };
    let line = serde_json::to_string(request).map_err(|error| error.to_string())?;
    let text = DAEMON.ask(&arguments.socket, &line, timeout)?;
    let place = arguments.socket.display();
    serde_json::from_slice(&text)
        .map_err(|error| format!("{place}: the answer is not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Command, What};
    use clap::{CommandFactory, Parser};
    use switchd::control::api::Request;

    fn request(words: &[&str]) -> Request {
        let line = ["switchctl"].iter().chain(words);
        match Arguments::try_parse_from(line).map(|arguments| arguments.command) {
            Ok(Command::Direct(what) | Command::Show(what)) => What::request(&what),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn the_singular_is_understood_with_show_and_without() {
        for plural in [
            "ports",
            "queues",
            "routes",
            "nexthops",
            "flowlets",
            "drops",
            "workers",
            "neighbours",
            "elephants",
            "events",
        ] {
            let singular = plural.trim_end_matches('s');
            let meant = format!("{:?}", request(&["show", plural]));
            assert_eq!(meant, format!("{:?}", request(&["show", singular])));
            assert_eq!(meant, format!("{:?}", request(&[singular])));
        }
    }

    #[test]
    fn no_two_commands_share_a_word() {
        Arguments::command().debug_assert();
    }
}
