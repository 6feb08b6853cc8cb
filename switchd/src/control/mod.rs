//! The control side: follows the kernel, programs the tables, answers operators and collectors.
//!
//! ```text
//!   kernel ── netlink ─▶ routing ── Mirror, Changes ─▶ program ── Update ─▶ publisher
//!                                                                              │ Tables, Fib
//!                                                                              ▼
//!   operator ─▶ admin ─▶ answer ─┬─▶ operation: reload, hold ── policy, commands ─▶ workers
//!                                ├─▶ pfc_watchdog: PFC on again ────── commands ─▶   │
//!                                ├─▶ trace ─▶ pcap ─────────────────── commands ─▶   │
//!                                └─▶ report: rows of each topic                      │
//!   collector ── HTTP ─▶ metrics                                                     │
//!   timer ─▶ aiecn ── insight ── policy ─▶ workers                              │
//!   timer ─▶ thresholds ─▶ event_log ◀─ state ◀── WorkerEvent, WorkerStats ──────────┘
//! ```
//!
//! One thread does all of it (`thread`). Modules from the ground up; each imports only what stands
//! above it in this list:
//!
//! ```text
//!   api            requests, answers and events, as JSON carries them
//!   lacking        routes that a table has no room for, until it has; pure
//!   program        from the mirror of the kernel to tables and routes; pure
//!   publisher      the program, and the order in which workers see what it decides; no socket
//!   routing        the netlink socket, the mirror and the publisher
//!   active_config  the configuration in force, and whether another can replace it
//!   baseline       what had been counted when the counters were cleared
//!   event_log      what happened lately, bounded
//!   thresholds     the sampling that finds thresholds being crossed
//!   bridge_watch   stations that move too often; pure
//!   absence        what the kernel was handed because workers took nothing
//!   silent_settings  settings of the kernel that are read from files
//!   compute        in-network compute: the workers' engines, and jobs that operators end
//!   flows          RoCEv2 flow analysis: what the workers saw, put together
//!   iqcn           which flows get congestion notifications that their senders miss
//!   slots          which interface is which port, while they come and go; pure
//!   port_handle    an open port
//!   opener         the thread that opens and closes ports while the switch runs
//!   porter         ports that are being opened and closed
//!   told           what the steering programs have been told
//!   state          all that control knows; commands to workers; what is wrong
//!   bridge         the ports and stations of bridges: what programs, kernel and operators are told
//!   steer          what the steering programs are told: what is the kernel's
//!   ports          takes the steps that the slots decide
//!   aiecn          marking thresholds that follow the traffic
//!   pfc_watchdog   the watchdog's events and state, and PFC turned on again
//!   operation      what operators change while the switch runs
//!   report         the rows of each topic
//!   metrics        the same for Prometheus
//!   pcap           traced packets as a file for Wireshark
//!   trace          packets followed for an operator
//!   answer         from a request to what does it
//!   admin          the admin socket
//!   thread         the loop
//! ```

mod absence;
pub mod active_config;
pub mod admin;
mod aiecn;
mod announced;
mod answer;
pub mod api;
mod baseline;
mod bridge;
mod bridge_watch;
mod compute;
pub mod event_log;
pub mod flows;
pub mod iqcn;
mod lacking;
mod metrics;
pub mod opener;
mod operation;
mod own_errors;
pub mod pcap;
mod peer_headroom;
mod pfc_watchdog;
pub mod port_handle;
pub mod porter;
pub mod ports;
pub mod program;
pub mod publisher;
mod report;
pub mod routing;
pub mod silent_settings;
pub mod slots;
pub mod state;
mod status_text;
mod steer;
pub mod thread;
mod thresholds;
mod told;
pub mod trace;
