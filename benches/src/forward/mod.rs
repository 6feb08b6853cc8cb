//! SW-1, SW-4, SW-10 to SW-34: a switch on veth under overload: what comes out when more goes in
//! than can be forwarded.
//!
//! ```text
//!     core 0                                        core 1
//!     source  s0 ═ veth ═ p0  forwarder  p1 ═ veth ═ k0  sink
//! ```
//!
//! Every contender does the same: it takes IPv4 frames from `p0`, writes new MAC addresses (routers
//! also decrement the TTL) and sends them out of `p1`. The *reflector* is the AF_XDP layer of this
//! project with nothing on top. Its rate is what the kernel's copy path allows here, so switchd's
//! ratio to it is the cost of the pipeline. switchd runs three times: plain, with every feature of
//! its traffic manager and its load balancing on ([`everything`]), and with flow analysis besides,
//! for which the frames are packets of one connection. Two more bridge the same frames, one of them
//! into a VLAN, whose tag it puts in.
//!
//! Jumbo frames have a group and links of their own, of MTU 9000, where the sockets take frames in
//! pieces. The source cannot offer as many as a forwarder takes, for the kernel copies each three
//! times on its core. So what counts there is frames for each second that the forwarder ran.
//!
//! The last group offers a part of what switchd could forward, at a steady rate, alone and beside a
//! job of in-network compute that takes what it gets.
//!
//! The kernel's receive path runs on the core of the source, the transmit path on that of the
//! forwarder. The source is faster than every forwarder. A forwarder that was idle for some of the
//! time was not the bottleneck, and the results say so.

mod contender;
mod job;
mod open_vswitch;
mod reflector;

pub use reflector::reflect;

use crate::everything;
use crate::measure::statistics::median;
use crate::measure::{Better, Bound, Figure, Group, Subject};
use crate::rig::{run_as_others, run_first};
use contender::{Contender, ORDINARY};
use job::Beside;
use tempfile::TempDir;

/// Lengths of frames, without frame check sequence.
const LENGTHS: [usize; 2] = [64, 1500];

/// Length of jumbo frames, and the MTU of their links.
const JUMBO: usize = 9000;
const JUMBO_MTU: u32 = 9000;

/// Places of the contenders that bounds compare.
const REFLECTOR: usize = 0;
const PLAIN: usize = 1;
const EVERYTHING: usize = 2;
const ANALYSED: usize = 3;
const BRIDGING: usize = 4;

/// Contenders that frames are bridged by; the second one is left out where the kernel's bridges
/// have no VLANs.
const BRIDGES: [&str; 2] = ["switchd, bridging", "switchd, bridging into a VLAN"];

/// What bridging has to reach of routing.
const BRIDGING_MIN: f64 = 0.95;

/// What switchd has to reach of the reflector.
const RATIO_MIN: f64 = 0.92;

/// What it has to reach with everything on of what it does when it is plain.
const EVERYTHING_MIN: f64 = 0.85;

/// What flow analysis may leave of the rate (SW-50).
const ANALYSED_MIN: f64 = 0.95;

/// What switchd has to forward beside a saturating job of what it forwards without (SW-42).
const BESIDE_MIN: f64 = 0.90;

/// Contenders of the last group.
const BESIDE: [&str; 2] = ["switchd", "switchd beside a job"];

/// A forwarder that ran for less than this share of its turns was not the bottleneck. (The kernel
/// keeps 5 % of each core for ordinary processes.)
const BUSY_MIN: f64 = 0.85;

/// The bench: a group of contenders for each length, jumbo frames, and forwarding beside a job.
struct Forward {
    groups: Vec<Group>,
    contenders: Vec<Contender>,
    jumbo: Vec<Contender>,
    beside: Beside,
    /// For each group and contender the share of each turn that it ran.
    shares: Vec<Vec<Vec<f64>>>,
    /// Configurations and logs.
    _folder: TempDir,
}

/// Starts all forwarders. A peer that is not installed is named and left out.
///
/// # Errors
/// What could not be set up.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    run_first(2)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let all = everything::text();
    let analysed = format!("{all}\n[flows]\nenabled = true\n");
    let mut contenders = vec![
        Contender::reflector(folder.path(), ORDINARY)?,
        Contender::switchd(("switchd", "plain"), folder.path(), ORDINARY, "")?,
        Contender::switchd(
            ("switchd with everything on", "all"),
            folder.path(),
            ORDINARY,
            &all,
        )?,
        Contender::switchd(
            ("switchd with everything on, analysed", "flows"),
            folder.path(),
            ORDINARY,
            &analysed,
        )?,
        Contender::bridging(BRIDGES[0], folder.path(), false)?,
    ];
    match Contender::bridging(BRIDGES[1], folder.path(), true) {
        Ok(contender) => contenders.push(contender),
        Err(why) => eprintln!("bench: forward: left out: {}: {why}", BRIDGES[1]),
    }
    match open_vswitch::start(folder.path()) {
        Ok(contender) => contenders.push(contender),
        Err(why) => eprintln!("bench: forward: left out: {why}"),
    }
    let jumbo = vec![
        Contender::reflector(folder.path(), JUMBO_MTU)?,
        Contender::switchd(("switchd", "jumbo"), folder.path(), JUMBO_MTU, "")?,
        Contender::switchd(
            ("switchd with everything on", "jumbo-all"),
            folder.path(),
            JUMBO_MTU,
            &all,
        )?,
    ];
    let names = |all: &[Contender]| all.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    let mut groups: Vec<_> = LENGTHS.map(|len| group(len, &names(&contenders))).into();
    groups.push(jumbo_group(&names(&jumbo)));
    groups.push(beside_group());
    let mut shares = vec![vec![Vec::new(); contenders.len()]; LENGTHS.len()];
    shares.push(vec![Vec::new(); jumbo.len()]);
    Ok(Box::new(Forward {
        groups,
        shares,
        contenders,
        jumbo,
        beside: Beside::new(folder.path())?,
        _folder: folder,
    }))
}

fn group(len: usize, names: &[String]) -> Group {
    let mut figures = vec![
        Figure::ratio(names, PLAIN, REFLECTOR, Some(Bound::AtLeast(RATIO_MIN))),
        Figure::ratio(
            names,
            EVERYTHING,
            PLAIN,
            Some(Bound::AtLeast(EVERYTHING_MIN)),
        ),
        Figure::ratio(
            names,
            ANALYSED,
            EVERYTHING,
            Some(Bound::AtLeast(ANALYSED_MIN)),
        ),
    ];
    let bridging = (BRIDGING..names.len()).filter(|at| BRIDGES.contains(&names[*at].as_str()));
    let bound = Some(Bound::AtLeast(BRIDGING_MIN));
    figures.extend(bridging.map(|at| Figure::ratio(names, at, PLAIN, bound)));
    let others = EVERYTHING..names.len();
    figures.extend(others.map(|one| Figure::ratio(names, one, REFLECTOR, None)));
    Group {
        title: format!("{len}-byte frames under overload"),
        unit: "M/s".to_owned(),
        better: Better::High,
        contenders: names.to_vec(),
        figures,
    }
}

fn jumbo_group(names: &[String]) -> Group {
    Group {
        title: format!("{JUMBO}-byte frames, in pieces, for each second that the forwarder ran"),
        unit: "M/s".to_owned(),
        better: Better::High,
        contenders: names.to_vec(),
        figures: vec![
            Figure::ratio(names, PLAIN, REFLECTOR, Some(Bound::AtLeast(RATIO_MIN))),
            Figure::ratio(
                names,
                EVERYTHING,
                PLAIN,
                Some(Bound::AtLeast(EVERYTHING_MIN)),
            ),
        ],
    }
}

fn beside_group() -> Group {
    let title = "64-byte frames, 0.4 M/s, beside the same contribution again and again";
    let mut group = Group::beside_first(title, "M/s", Better::High, &BESIDE);
    group.figures[0].bound = Some(Bound::AtLeast(BESIDE_MIN));
    group
}

impl Forward {
    /// The place of the group beside a job.
    fn last(&self) -> usize {
        self.groups.len() - 1
    }

    /// Contenders of a group, and the length of their frames.
    fn of(&self, group: usize) -> (&[Contender], usize) {
        match LENGTHS.get(group) {
            Some(len) => (&self.contenders, *len),
            None => (&self.jumbo, JUMBO),
        }
    }
}

impl Subject for Forward {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        if group == self.last() {
            return Ok(self.beside.turn(contender == 1)? / 1e6);
        }
        let (contenders, len) = self.of(group);
        let reached = contenders[contender].turn(len)?;
        self.shares[group][contender].push(reached.share);
        let ran = if len == JUMBO { reached.share } else { 1.0 };
        Ok(reached.per_second / ran / 1e6)
    }

    fn notes(&self, group: usize) -> Vec<String> {
        if group == self.last() {
            let results = self.beside.results() / 1e6;
            return vec![format!("the job had {results:.2} million results a second")];
        }
        if group == LENGTHS.len() {
            return Vec::new();
        }
        let shares = self.contenders.iter().zip(&self.shares[group]);
        let rested = shares.filter_map(|(contender, shares)| {
            let share = median(shares).filter(|share| *share < BUSY_MIN)? * 100.0;
            let name = &contender.name;
            Some(format!(
                "{name} ran for {share:.0} % of the time only: it was not the limit"
            ))
        });
        rested.collect()
    }

    fn finish(&mut self) -> Result<(), String> {
        run_as_others()
    }
}
