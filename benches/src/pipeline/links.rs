//! Other links than those of a plain router: tags, bridges, congestion signals, jumbo frames.
//!
//! Each case is measured beside the plain switch in the same round, both without what their queues
//! alone take. So the ratios say what tags and stations cost, whatever the machine does meanwhile.
//! Packets of a VLAN are routed by the same full table, to the same random destinations; bridged
//! frames go between random stations, of which a bridge knows as many as the shipped
//! configuration allows.

use super::queue::{
    Destination, JUMBO, LEAD, LEN, Links, PACKETS, QueuesOnly, WARM_UP, jumbo, stations,
};
use super::switch::{Duties, Switch};
use crate::measure::{Better, Bound, Figure, Group, Term};
use common::wire::csig::{Form, Signal};
use std::sync::Arc;
use switchd::forward::fib::FibWriter;

/// What the rates of bridging and of routing by VLANs have to be of that of plain routing.
const RATE_MIN: f64 = 0.95;

/// The same of routing packets whose CSIG tags are compared with the port's values, and updated if
/// need be: a tenth more time (CS-11).
const SIGNED_MIN: f64 = 1.0 / 1.1;

/// What is measured beside plain routing, and what its rate has to be of that.
const CASES: [(&str, Links, f64); 7] = [
    ("routing by 802.1Q tags", Links::Tagged, RATE_MIN),
    ("routing by a VLAN of a bridge", Links::Svi, RATE_MIN),
    ("bridging", Links::Bridged, RATE_MIN),
    ("bridging in a VLAN", Links::Joined, RATE_MIN),
    (
        "routing with compact CSIG tags for ABW/C updated",
        Links::Signed(Form::Compact, Signal::AvailableShare),
        SIGNED_MIN,
    ),
    (
        "routing with expanded CSIG tags for ABW/C updated",
        Links::Signed(Form::Expanded, Signal::AvailableShare),
        SIGNED_MIN,
    ),
    (
        "routing with compact CSIG tags for PD compared",
        Links::Signed(Form::Compact, Signal::Delay),
        SIGNED_MIN,
    ),
];

/// Contenders of both groups: queues alone and a switch, first of 64-byte frames without tags, then
/// for each case.
const PLAIN: usize = 0;
const EACH: usize = 2;

/// One case: its queues alone, and a switch.
struct Case {
    queues: QueuesOnly,
    switch: Switch,
}

/// The cases of this file.
pub(super) struct Others {
    /// As [`CASES`], then jumbo frames.
    cases: Vec<Case>,
}

/// Which contender of [`super::Family`] is asked for, or which of [`Others`].
pub(super) enum Asked {
    /// The queues alone of 64-byte frames.
    PlainQueues,
    /// The plain switch of 64-byte frames.
    PlainSwitch,
    /// One of [`Others::turn`].
    Other(usize),
}

/// Who a contender of a group of this file is.
pub(super) fn asked(is_jumbo: bool, contender: usize) -> Asked {
    let first = if is_jumbo { CASES.len() * EACH } else { 0 };
    match contender {
        0 => Asked::PlainQueues,
        1 => Asked::PlainSwitch,
        other => Asked::Other(first + other - EACH),
    }
}

impl Others {
    /// All cases, on these routes, to these IPv4 destinations.
    pub(super) fn new(
        routes: &FibWriter,
        destinations: &Arc<[Destination]>,
        random: &mut rand_pcg::Pcg64Mcg,
    ) -> Self {
        let (pairs, long) = (stations(random), jumbo(destinations));
        let case = |links| {
            let destinations = match links {
                Links::Bridged | Links::Joined => &pairs,
                Links::Jumbo => &long,
                Links::Plain | Links::Tagged | Links::Svi | Links::Signed(..) => destinations,
            };
            let mut switch = Switch::new(routes, destinations, Duties::plain(links));
            switch.forward(WARM_UP);
            Case {
                queues: QueuesOnly::new(links, destinations),
                switch,
            }
        };
        let all = CASES.iter().map(|(_, links, _)| *links);
        Self {
            cases: all.chain([Links::Jumbo]).map(case).collect(),
        }
    }

    /// Nanoseconds a packet.
    ///
    /// # Errors
    /// If the packet path allocates.
    pub(super) fn turn(&mut self, contender: usize) -> Result<f64, String> {
        let case = &mut self.cases[contender / EACH];
        if contender.is_multiple_of(EACH) {
            case.queues.turn(LEAD);
            return Ok(case.queues.turn(PACKETS));
        }
        case.switch.forward(LEAD);
        case.switch.turn(PACKETS)
    }

    /// As [`Switch::check`], of all.
    ///
    /// # Errors
    /// Which case went another way than it was to.
    pub(super) fn check(&self) -> Result<(), String> {
        let names = CASES.iter().map(|(name, ..)| *name);
        let names = names.chain(["jumbo frames"]);
        for (name, case) in names.zip(&self.cases) {
            case.switch
                .check()
                .map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }
}

/// What a contender takes without its queues, with a sign or as a share.
fn net(case: usize, weight: f64) -> Vec<Term> {
    let queues = PLAIN + case * EACH;
    let term = |contender, weight| Term { contender, weight };
    vec![term(queues + 1, weight), term(queues, -weight)]
}

fn figure(name: String, unit: &'static str, of: Vec<Term>, to: Vec<Term>) -> Figure {
    Figure {
        name,
        unit,
        of,
        to,
        bound: None,
    }
}

fn contenders(names: &[&str]) -> Vec<String> {
    let both = |name: &&str| [format!("{name}, queues alone"), (*name).to_owned()];
    names.iter().flat_map(both).collect()
}

/// VLANs and bridges beside plain routing.
pub(super) fn vlans_and_bridges() -> Group {
    let names: Vec<_> = ["plain routing"]
        .into_iter()
        .chain(CASES.iter().map(|(name, ..)| *name))
        .collect();
    let mut figures = Vec::new();
    for (case, name) in names.iter().enumerate() {
        let name = (*name).to_owned();
        figures.push(figure(name, "ns a packet", net(case, 1.0), Vec::new()));
    }
    for ((case, name), (.., least)) in names.iter().enumerate().skip(1).zip(CASES) {
        let name = format!("rate of {name} ÷ {}", names[0]);
        figures.push(Figure {
            bound: Some(Bound::AtLeast(least)),
            ..figure(name, "", net(0, 1.0), net(case, 1.0))
        });
    }
    Group {
        title: "VLANs, bridges and CSIG tags, IPv4, 1.25 M routes, 16,384 stations".to_owned(),
        unit: "ns a packet".to_owned(),
        better: Better::Low,
        contenders: contenders(&names),
        figures,
    }
}

/// Jumbo frames beside 64-byte frames that are queued, as they are.
pub(super) fn jumbo_frames() -> Group {
    #[expect(clippy::cast_precision_loss, reason = "lengths of frames")]
    let kib = |len: usize| 1024.0 / len as f64;
    let names = ["64 bytes, queued", "9014 bytes in three chunks"];
    let lengths = [LEN, JUMBO];
    let mut figures = Vec::new();
    for (case, name) in names.iter().enumerate() {
        let name = (*name).to_owned();
        figures.push(figure(name, "ns a packet", net(case, 1.0), Vec::new()));
    }
    for (case, name) in names.iter().enumerate() {
        let each = net(case, kib(lengths[case]));
        figures.push(figure((*name).to_owned(), "ns a KiB", each, Vec::new()));
    }
    let name = format!("a packet of {} ÷ one of {}", names[1], names[0]);
    figures.push(figure(name, "", net(1, 1.0), net(0, 1.0)));
    Group {
        title: "jumbo frames, IPv4, 1.25 M routes".to_owned(),
        unit: "ns a packet".to_owned(),
        better: Better::Low,
        contenders: contenders(&names),
        figures,
    }
}
