//! SW-1, SW-2: the packet path of one worker without I/O, from parse to rewrite, on a full Internet
//! table.
//!
//! The ports' queues hand out frames whose headers were just written, as a device leaves them in
//! the cache, for random destinations. A transmitted frame is received again with another
//! destination. The cost of that exchange is measured too, by handing each batch from receive to
//! transmit directly, and subtracted. The result is judged as a ratio to the `reference` loop of
//! the same round: both slow down on a slow machine.
//!
//! A plain switch sees a destination once in a million packets, which is the worst case for its
//! look-ups. With every feature on, the state of flows counts too: the packets belong to
//! `queue::FLOWS` flows. The cost with a million flows, where each packet evicts the state of
//! another flow, is shown beside it.
//!
//! Packets find their ports idle and bypass the queues. The cost of queues, buffer accounting and
//! scheduler is measured with one more port whose groups admit no packet: then no packet bypasses.
//!
//! ```text
//!   queue      the ports' queues, and the frames in them
//!   switch     a switch with one worker
//!   reference  the loop that the pipeline is compared with
//!   links      VLANs, bridges and jumbo frames, compared with plain routing
//! ```

mod links;
mod queue;
mod reference;
mod switch;

use crate::measure::{Better, Bound, Figure, Group, Subject, Term};
use crate::routes::{self, FULL_V4, FULL_V6};
use links::{Asked, Others, asked};
use queue::{Destination, LEAD, Links, PACKETS, QueuesOnly, WARM_UP, destinations, few};
use reference::Reference;
use std::sync::Arc;
use switch::{Duties, Switch, fill};
use switchd::forward::fib::FibWriter;

/// The most that a packet to a random route may cost, as a multiple of the reference loop, in the
/// first [`BOUNDED`] cases.
///
/// The bound was once 130 ns. On a quiet machine the reference loop takes 19.4 ns, so 130 ns are
/// 6.7 times the reference; the dearest bounded case takes 114 ns. On a machine whose cores are all
/// busy the reference, which waits for memory most of its time, slows down more than the pipeline
/// does: there the bound is wider.
const RATIO_MAX: f64 = 6.7;

/// What is measured.
const CASES: [&str; 7] = [
    "plain",
    "plain, queued",
    "everything on, 2048 flows",
    "everything on, 2048 flows, queued",
    "everything on, 1 M flows",
    "everything on, 2048 flows, analysed",
    "everything on, 2048 flows, queued, with AI ECN",
];
/// The first so many cases are bounded.
const BOUNDED: usize = 4;

/// Contenders of a family of addresses: the queues alone, the reference loop, the cases.
const QUEUES: usize = 0;
const REFERENCE: usize = 1;
const CASE: usize = 2;
/// The cases that others are compared with: plain, and that with queues.
const PLAIN: usize = CASE;
const QUEUED: usize = CASE + 1;
/// The case with flow analysis, and that without.
const ANALYSED: [usize; 2] = [CASE + 5, CASE + 2];
/// The case whose queues AI ECN looks at, and that without.
const WATCHED: [usize; 2] = [CASE + 6, CASE + 3];
const CONTENDERS: usize = CASE + CASES.len();

/// What is measured with the addresses of one family.
struct Family {
    name: &'static str,
    /// Share of the routes.
    share: f64,
    queues: QueuesOnly,
    reference: Reference,
    switches: [Switch; CASES.len()],
}

/// Groups of contenders.
const FAMILIES: usize = 0;
const JUMBO: usize = 2;

/// The bench.
struct Pipeline {
    groups: [Group; 3],
    families: [Family; 2],
    others: Others,
    /// Kept: the switches read it.
    _routes: FibWriter,
}

/// Sets the bench up: the table, and for each family of addresses its contenders.
///
/// # Errors
/// If the route table has no room.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let mut random = routes::random();
    let table = routes::table(FULL_V4, FULL_V6, &mut random);
    let routes = fill(&table, &mut random)?;
    let [v4, v6] = [true, false].map(|v4| destinations(&table, v4, &mut random));
    let others = Others::new(&routes, &v4, &mut random);
    let families = [(true, v4), (false, v6)].map(|(v4, to)| Family::new(v4, &to, &routes));
    Ok(Box::new(Pipeline {
        groups: [
            group(&families),
            links::vlans_and_bridges(),
            links::jumbo_frames(),
        ],
        families,
        others,
        _routes: routes,
    }))
}

/// The contenders of both families, and what follows: for each case nanoseconds by family and for a
/// random route, and its ratio to the reference.
fn group(families: &[Family; 2]) -> Group {
    let all = ["queues alone", "reference loop"].into_iter().chain(CASES);
    let names = |family: &Family| -> Vec<String> {
        let names = all.clone().map(|what| format!("{}, {what}", family.name));
        names.collect()
    };
    let contenders: Vec<_> = families.iter().flat_map(names).collect();
    // A contender of each family by the share of its routes.
    let random = |contender: usize, sign: f64| {
        [0, 1].map(|family| Term {
            contender: family * CONTENDERS + contender,
            weight: sign * families[family].share,
        })
    };
    let mut figures = Vec::new();
    let mut ratios = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        for (at, family) in families.iter().enumerate() {
            let term = |contender, weight| Term {
                contender: at * CONTENDERS + contender,
                weight,
            };
            figures.push(Figure {
                name: format!("{}, {case}", family.name),
                unit: "ns a packet",
                of: vec![term(CASE + number, 1.0), term(QUEUES, -1.0)],
                to: Vec::new(),
                bound: None,
            });
        }
        let net = [random(CASE + number, 1.0), random(QUEUES, -1.0)].concat();
        figures.push(Figure {
            name: format!("a random route, {case}"),
            unit: "ns a packet",
            of: net.clone(),
            to: Vec::new(),
            bound: None,
        });
        ratios.push(Figure {
            name: format!("a random route, {case} ÷ reference loop"),
            unit: "",
            of: net,
            to: random(REFERENCE, 1.0).to_vec(),
            bound: (number < BOUNDED).then_some(Bound::AtMost(RATIO_MAX)),
        });
    }
    figures.append(&mut ratios);
    // Frames of IPv6 are too short to be RoCEv2.
    let term = |contender, weight| Term { contender, weight };
    for (what, cases) in [("flow analysis", ANALYSED), ("AI ECN", WATCHED)] {
        let [with, without] = cases.map(|case| vec![term(case, 1.0), term(QUEUES, -1.0)]);
        figures.push(Figure {
            name: format!("IPv4, time with {what} ÷ without"),
            unit: "",
            of: with,
            to: without,
            bound: None,
        });
    }
    Group {
        title: "parse to rewrite, 1.25 M routes; cases without the queues alone".to_owned(),
        unit: "ns a packet".to_owned(),
        better: Better::Low,
        contenders,
        figures,
    }
}

impl Family {
    fn new(v4: bool, destinations: &Arc<[Destination]>, routes: &FibWriter) -> Self {
        let few = few(destinations);
        let with = |destinations, duties| {
            let mut switch = Switch::new(routes, destinations, duties);
            switch.forward(WARM_UP);
            switch
        };
        let switch = |destinations, everything, queued| {
            let duties = Duties {
                everything,
                queued,
                ..Duties::plain(Links::Plain)
            };
            with(destinations, duties)
        };
        let all = Duties {
            everything: true,
            ..Duties::plain(Links::Plain)
        };
        let analysed = Duties {
            analysed: true,
            ..all
        };
        let watched = Duties {
            queued: true,
            watched: true,
            ..all
        };
        #[expect(clippy::cast_precision_loss, reason = "shares of a table")]
        let share = if v4 { FULL_V4 } else { FULL_V6 } as f64 / (FULL_V4 + FULL_V6) as f64;
        Self {
            name: if v4 { "IPv4" } else { "IPv6" },
            share,
            queues: QueuesOnly::new(Links::Plain, destinations),
            reference: Reference::new(destinations, routes.bytes()),
            switches: [
                switch(destinations, false, false),
                switch(destinations, false, true),
                switch(&few, true, false),
                switch(&few, true, true),
                switch(destinations, true, false),
                with(&few, analysed),
                with(&few, watched),
            ],
        }
    }

    fn turn(&mut self, contender: usize) -> Result<f64, String> {
        match contender {
            QUEUES => {
                self.queues.turn(LEAD);
                Ok(self.queues.turn(PACKETS))
            }
            REFERENCE => {
                self.reference.turn(LEAD);
                Ok(self.reference.turn(PACKETS))
            }
            case => {
                let switch = &mut self.switches[case - CASE];
                switch.forward(LEAD);
                switch.turn(PACKETS)
            }
        }
    }
}

impl Subject for Pipeline {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let [v4, _] = &mut self.families;
        let measured = if group == FAMILIES {
            self.families[contender / CONTENDERS].turn(contender % CONTENDERS)
        } else {
            match asked(group == JUMBO, contender) {
                Asked::PlainQueues => v4.turn(QUEUES),
                Asked::PlainSwitch if group == JUMBO => v4.turn(QUEUED),
                Asked::PlainSwitch => v4.turn(PLAIN),
                Asked::Other(other) => self.others.turn(other),
            }
        };
        measured.map_err(|why| format!("{}: {why}", self.groups[group].contenders[contender]))
    }

    fn finish(&mut self) -> Result<(), String> {
        for family in &self.families {
            let refused = family.reference.refused();
            if refused != 0 {
                let name = family.name;
                return Err(format!("{name}: the reference refused {refused} packets"));
            }
            for (case, switch) in CASES.iter().zip(&family.switches) {
                let checked = switch.check();
                checked.map_err(|why| format!("{}, {case}: {why}", family.name))?;
            }
        }
        self.others.check()
    }
}
