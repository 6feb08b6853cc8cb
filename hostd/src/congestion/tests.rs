//! What tests of several algorithms share: packets, traces, and independent models in Python.

use crate::stats::{PathLoad, PathSignal};
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::wire::csig::Signal;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Payload bytes of the packets of traces, and their round trip without queueing.
pub(in crate::congestion) const MTU: u16 = 4096;
pub(in crate::congestion) const BASE: Span = Span::from_micros(14);

/// What became of a packet, and the round trip of the one that caused the acknowledgement.
pub(in crate::congestion) fn feedback(fate: PacketFate, delay: Span) -> Feedback {
    Feedback {
        path: 0,
        entropy: 0,
        sent: Time::ZERO,
        round_trip: None,
        delay: Some(delay),
        fate,
    }
}

/// A packet that came.
pub(in crate::congestion) fn came(marked: bool) -> PacketFate {
    PacketFate::Delivered {
        newest_copy: true,
        marked,
    }
}

/// A signal that a device wrote.
pub(in crate::congestion) fn signal(signal: Signal, value: u64, at: Time) -> PathSignal {
    PathSignal {
        signal,
        last: value,
        smoothed: value,
        locator: 1,
        is_neutral: false,
        is_last_hop: false,
        at,
    }
}

/// What an algorithm that goes by signals takes in.
pub(in crate::congestion) enum Event {
    /// The outcome of a packet.
    Outcome(Feedback),
    /// A signal that came back.
    Signal(PathSignal),
}

/// Events of a trace, and those of them before the loop is closed.
const EVENTS: u32 = 10_000;
const OPEN: u32 = 5_000;

/// A link with a queue, of which a trace tells. At first the queue wanders, whatever the algorithm
/// does. Then it follows from that: the algorithm sends the part of the line that its window or
/// rate is of the largest one before, and others take a part that wanders.
struct Link {
    /// How long a packet waits now, in nanoseconds.
    queue: u64,
    turn: u32,
    largest: f64,
    part: f64,
    others: f64,
}

impl Link {
    fn new() -> Self {
        Self {
            queue: 5_000,
            turn: 0,
            largest: 0.0,
            part: 1.0,
            others: 0.5,
        }
    }

    /// So many nanoseconds later.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "short times, and not negative"
    )]
    fn pass(&mut self, nanos: u64, random: &mut Pcg64Mcg) {
        let draw = random.next_u64() % 2_001;
        self.turn += 1;
        self.queue = if self.turn <= OPEN {
            (self.queue + draw).saturating_sub(1_000)
        } else {
            self.others = (self.others + (draw as f64 - 1_000.0) / 20_000.0).clamp(0.1, 0.9);
            let grown = (self.part + self.others - 1.0) * nanos as f64;
            (self.queue as f64 + grown).max(0.0) as u64
        };
        self.queue = self.queue.min(30_000);
    }

    /// What the window or rate is now.
    fn take(&mut self, said: f64) {
        self.largest = self.largest.max(said);
        self.part = said / self.largest;
    }
}

/// As [`trace`], with signals between the outcomes of packets: time, round trip or value, kind,
/// whether the value is neutral, and the window after it. For a while none come, and for a while no
/// device writes.
pub(in crate::congestion) fn signalled_trace(
    seed: u128,
    mut react: impl FnMut(&Event, Time) -> f64,
) -> String {
    println!("seed {seed}");
    let mut random = Pcg64Mcg::new(seed);
    let mut now = Time::from_nanos(1_000_000);
    let mut text = String::new();
    let mut link = Link::new();
    let mut kinds = [0; 4];
    for turn in 0..EVENTS {
        let passed = 200 + random.next_u64() % 400;
        now += Span::from_nanos(passed);
        link.pass(passed, &mut random);
        let queue = link.queue;
        let (draw, is_neutral) = (random.next_u64() % 1_000, (6_000..7_500).contains(&turn));
        let silent = (3_000..4_500).contains(&turn);
        let read = |kind, value, none| PathSignal {
            is_neutral,
            ..signal(kind, if is_neutral { none } else { value }, now)
        };
        let (kind, name, value, event) = match draw {
            0..100 if !silent => {
                let share = 1_000_000 / (1 + queue / 1_000);
                let read = read(Signal::AvailableShare, share, 990_000);
                (0, "share", read.last, Event::Signal(read))
            }
            100..200 if !silent => {
                let read = read(Signal::Delay, queue * (draw - 100) / 100, 0);
                (1, "delay", read.last, Event::Signal(read))
            }
            _ => {
                let delay = BASE + Span::from_nanos(queue);
                let (kind, name, fate) = match draw {
                    990.. if queue > 10_000 => (2, "trim", PacketFate::Trimmed),
                    _ => (3, "ack", came(false)),
                };
                let outcome = Event::Outcome(feedback(fate, delay));
                (kind, name, delay.nanos(), outcome)
            }
        };
        kinds[kind] += 1;
        let window = react(&event, now);
        link.take(window);
        let (now, neutral) = (now.nanos(), u8::from(is_neutral));
        let _ = writeln!(text, "{now} {value} {name} {neutral} {window}");
    }
    assert!(kinds.iter().all(|count| *count > 20), "{kinds:?}");
    text
}

/// What an algorithm that goes by telemetry takes in.
pub(in crate::congestion) enum LoadEvent {
    /// The outcome of a packet.
    Outcome(Feedback),
    /// What the peer said of the worst link.
    Load(PathLoad),
}

/// As [`trace`], with telemetry between the outcomes of packets: time, round trip or what is in
/// flight, kind, time since the packet left, and the window after it. For a while none comes.
pub(in crate::congestion) fn loaded_trace(
    seed: u128,
    mut react: impl FnMut(&LoadEvent, Time) -> f64,
) -> String {
    println!("seed {seed}");
    let mut random = Pcg64Mcg::new(seed);
    let mut now = Time::from_nanos(1_000_000);
    let mut text = String::new();
    let mut link = Link::new();
    let mut kinds = [0; 3];
    for turn in 0..EVENTS {
        let passed = 200 + random.next_u64() % 400;
        now += Span::from_nanos(passed);
        link.pass(passed, &mut random);
        let queue = link.queue;
        let (draw, silent) = (random.next_u64() % 1_000, (3_000..4_500).contains(&turn));
        let delay = BASE + Span::from_nanos(queue);
        let (kind, name, value, event) = match draw {
            0..300 if !silent => {
                let load = PathLoad {
                    hop: 1,
                    is_cut: false,
                    in_flight: 600 + queue / 14,
                    queue,
                    speed: 100_000_000_000,
                    at: now,
                };
                (0, "load", load.in_flight, LoadEvent::Load(load))
            }
            _ => {
                let (kind, name, fate) = match draw {
                    990.. if queue > 10_000 => (1, "trim", PacketFate::Trimmed),
                    _ => (2, "ack", came(false)),
                };
                let outcome = Feedback {
                    sent: now - delay,
                    ..feedback(fate, delay)
                };
                (kind, name, delay.nanos(), LoadEvent::Outcome(outcome))
            }
        };
        kinds[kind] += 1;
        let window = react(&event, now);
        link.take(window);
        let (now, since) = (now.nanos(), delay.nanos());
        let _ = writeln!(text, "{now} {value} {name} {since} {window}");
    }
    assert!(kinds.iter().all(|count| *count > 20), "{kinds:?}");
    text
}

/// A trace of 10,000 events of a [`Link`] for an independent model: time, round trip, kind, packets
/// in flight, and the window after it, as `react` says.
pub(in crate::congestion) fn trace(
    seed: u128,
    mut react: impl FnMut(&Feedback, u32, Time) -> f64,
) -> String {
    println!("seed {seed}");
    let mut random = Pcg64Mcg::new(seed);
    let mut now = Time::from_nanos(1_000_000);
    let mut text = String::new();
    // What becomes of packets follows from the queue.
    let mut link = Link::new();
    let mut kinds = [0; 3];
    for _ in 0..EVENTS {
        let passed = 200 + random.next_u64() % 400;
        now += Span::from_nanos(passed);
        link.pass(passed, &mut random);
        let queue = link.queue;
        let delay = BASE + Span::from_nanos(queue);
        let draw = random.next_u64() % 12_000;
        let (kind, name, fate) = match draw {
            _ if queue > 14_000 && draw < queue - 14_000 => (0, "trim", PacketFate::Trimmed),
            _ if draw + 3_000 < queue => (1, "mark", came(true)),
            _ => (2, "ack", came(false)),
        };
        kinds[kind] += 1;
        let in_flight = u32::try_from(random.next_u64() % 64).expect("few");
        let window = react(&feedback(fate, delay), in_flight, now);
        link.take(window);
        let (now, delay) = (now.nanos(), delay.nanos());
        let _ = writeln!(text, "{now} {delay} {name} {in_flight} {window}");
    }
    assert!(kinds.iter().all(|count| *count > 300), "{kinds:?}");
    text
}

/// How far a trace is apart from a model: the greatest relative difference of a window. `model` is
/// its file, and what it is told on its command line.
pub(in crate::congestion) fn apart(model: &str, trace: &str) -> f64 {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/");
    let mut words = model.split(' ');
    let mut child = Command::new("/usr/bin/python3")
        .arg(format!("{folder}{}", words.next().expect("a file")))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs the model");
    let mut input = child.stdin.take().expect("a pipe");
    let trace = trace.to_owned();
    let writer = std::thread::spawn(move || input.write_all(trace.as_bytes()));
    let output = child.wait_with_output().expect("the model ends");
    writer
        .join()
        .expect("a thread")
        .expect("the model reads all");
    assert!(output.status.success(), "the model failed");
    let said = String::from_utf8(output.stdout).expect("text");
    said.trim().parse().expect("a number")
}
