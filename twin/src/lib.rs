//! The twin: whole fabrics in virtual time, in one thread, from one seed, running the daemons' own
//! code.
//!
//! ```text
//!   scenario.toml ─▶ Scenario ─▶ Simulation ──────────────▶ Outcome ─▶ report, plot
//!                     seed ──▶   flows, faults, checks         │
//!                                     │                        └─▶ snapshot
//!                                  Fabric
//!                     schedule ─▶ nodes take turns ─▶ wires
//!                                  │            │
//!                    switchd::worker::Worker   hostd::worker::Worker ◀─ rings, doorbell ─ App
//! ```
//!
//! What is simulated: devices (`queue`), links (`wire`), clocks, the kernel's tables (`switch`),
//! applications (`app`). What is not: everything that looks at a packet. A switch is switchd's
//! worker with its route programming, a host is hostd's worker with its engine and its
//! applications' edge; both are given simulated ports and the time.
//!
//! ```text
//!   schedule     what happens when
//!   network      nodes, links, addresses, routes; topology makes them, paths follows them
//!   queue, wire  a port's rings, a link's direction and what can go wrong there
//!   switch, host the kinds of nodes that run daemons;  app, memory: the users of a host
//!   settings     what all switches have in common
//!   tuning       marking thresholds of a switch that follow its traffic
//!   following    what the control of a switch knows of flows, and the notifications it has made
//!   tester       the kind that sends and receives raw frames;  bench: small fabrics of testers
//!   fabric       nodes, wires and time in motion
//!   flow         what is sent;  workload, sizes, matrix make it
//!   collective   jobs that switches compute for: their members, vectors and results
//!   fault        what fails, and when
//!   scenario     files that define all this
//!   simulation   a scenario and a seed, from set-up to rest
//!   check, audit the invariants;  trace: the events before one failed
//!   sample, outcome, report, plot   figures;  picture: lines and axes as SVG;  heat: matrices
//!   compare      connection matrices beside figures that are given
//!   congestion   hostd's congestion controls beside each other
//!   snapshot     the reviewed figures of the shipped scenarios
//!   training     the table of scenarios of AI ECN, made and judged
//!   soak         random scenarios;  lossless: incasts that lose nothing
//! ```

pub mod app;
pub mod audit;
pub mod bench;
pub mod check;
pub mod collective;
pub mod compare;
pub mod congestion;
pub mod fabric;
pub mod fault;
pub mod flow;
pub mod following;
pub mod frames;
pub mod heat;
pub mod host;
pub mod lossless;
pub mod matrix;
pub mod memory;
pub mod network;
pub mod outcome;
pub mod paths;
pub mod picture;
pub mod plot;
pub mod queue;
pub mod report;
pub mod sample;
pub mod scenario;
pub mod schedule;
mod settings;
pub mod simulation;
pub mod sizes;
pub mod snapshot;
pub mod soak;
pub mod switch;
pub mod tester;
pub mod topology;
pub mod totals;
pub mod trace;
pub mod training;
pub mod tuning;
pub mod wire;
pub mod workload;
