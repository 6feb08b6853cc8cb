//! A laboratory, and who calls in it.

use super::contender::{Contender, WITH_LONG, WITH_SHORT};
use super::crew::{Crew, Turn};
use super::members::{self, Member};
use super::peers::{Company, Peers};
use crate::rig::thread_seconds;
use hostd_client::group::Algorithm;
use lab::topology::{Options, Qos};
use lab::{Builder, Lab, node_dir};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

/// Speed of all links: more than two cores carry.
const SPEED: u64 = 10_000_000_000;

/// Where rank 0 of hostd's first group waits.
const PORT: u16 = 7001;

/// A setting.
pub(super) struct Layout {
    /// How it is called.
    pub(super) name: &'static str,
    leaves: u8,
    hosts: u8,
}

pub(super) const SETTINGS: [Layout; 4] = [
    Layout {
        name: "4 ranks on one leaf",
        leaves: 1,
        hosts: 4,
    },
    Layout {
        name: "8 ranks on one leaf",
        leaves: 1,
        hosts: 8,
    },
    Layout {
        name: "4 ranks on two leaves with a spine",
        leaves: 2,
        hosts: 4,
    },
    Layout {
        name: "8 ranks on two leaves with a spine",
        leaves: 2,
        hosts: 8,
    },
];

/// Processor time in the turns of the way through the switches.
#[derive(Clone, Copy, Default)]
struct Spent {
    /// Bytes of the vector.
    bytes: usize,
    /// Seconds that the turns took, and that switchd, hostd and the ranks ran in them.
    elapsed: f64,
    ran: [f64; 3],
}

/// What is up.
pub(super) struct Setting {
    ours: HashMap<Contender, Crew>,
    theirs: HashMap<Contender, Company>,
    /// Processes of switchd, and of hostd.
    daemons: [Vec<u32>; 2],
    spent: Spent,
    lab: Lab,
}

impl Setting {
    /// Brings the laboratory up, and all contenders in it.
    pub(super) fn up(layout: &Layout, peers: &Peers) -> Result<Self, String> {
        eprintln!("bench: allreduce: setting up {}", layout.name);
        let options = Options {
            // Eight characters at most, and a process number has up to seven digits.
            name: format!("a{}", std::process::id()),
            leaves: layout.leaves,
            spines: 1,
            hosts: layout.hosts,
            speed: SPEED,
            qos: Qos::Plain,
            compute: true,
            ..Options::default()
        };
        let lab = Builder::new(options).up();
        let lab = lab.map_err(|error| error.to_string())?;
        let daemons = lab.daemons().map_err(|error| error.to_string())?;
        let of = |program: &str| {
            let ours = daemons.iter().filter(|it| it.program == program);
            ours.filter_map(|it| it.pid?.try_into().ok()).collect()
        };
        let mut setting = Self {
            ours: HashMap::new(),
            theirs: HashMap::new(),
            daemons: [of("switchd"), of("hostd")],
            spent: Spent::default(),
            lab,
        };
        for contender in WITH_SHORT.into_iter().chain(WITH_LONG) {
            if peers.has(contender) {
                setting.add(contender, peers)?;
            }
        }
        Ok(setting)
    }

    fn add(&mut self, contender: Contender, peers: &Peers) -> Result<(), String> {
        let algorithm = match contender {
            Contender::Switches => Algorithm::Inc,
            Contender::Doubling => Algorithm::Doubling,
            Contender::Ring => Algorithm::Ring,
            _ => {
                if !self.theirs.contains_key(&contender) {
                    let company = peers.start(&self.lab, contender)?;
                    self.theirs.insert(contender, company);
                }
                return Ok(());
            }
        };
        if self.ours.contains_key(&contender) {
            return Ok(());
        }
        let hosts = self.lab.hosts();
        let port = PORT + u16::try_from(self.ours.len()).expect("few");
        let root = SocketAddr::new(self.lab.host(hosts[0]).address(false), port);
        let member = |(rank, host): (usize, &&str)| Member {
            socket: node_dir(self.lab.name(), host).join("hostd.sock"),
            root,
            rank,
            size: hosts.len(),
            algorithm,
        };
        let members = hosts.iter().enumerate().map(member).collect();
        let crew = members::start(contender.name(), members)?;
        self.ours.insert(contender, crew);
        Ok(())
    }

    /// What a call of a contender took, in seconds.
    pub(super) fn turn(&mut self, contender: Contender, turn: Turn) -> Result<f64, String> {
        if let Some(company) = self.theirs.get_mut(&contender) {
            return company.crew().turn(turn);
        }
        if contender != Contender::Switches {
            return self.crew(contender).turn(turn);
        }
        let (began, before) = (Instant::now(), self.running()?);
        let took = self.crew(contender).turn(turn)?;
        let after = self.running()?;
        if self.spent.bytes != turn.bytes {
            self.spent = Spent {
                bytes: turn.bytes,
                ..Spent::default()
            };
        }
        self.spent.elapsed += began.elapsed().as_secs_f64();
        for (sum, (after, before)) in self.spent.ran.iter_mut().zip(after.iter().zip(before)) {
            *sum += after - before;
        }
        Ok(took)
    }

    fn crew(&mut self, contender: Contender) -> &mut Crew {
        self.ours.get_mut(&contender).expect("all of ours are up")
    }

    /// Seconds that switchd, hostd and the ranks of hostd, which are threads here, have run.
    fn running(&self) -> Result<[f64; 3], String> {
        let of = |all: &[u32]| -> Result<f64, String> {
            all.iter().map(|one| thread_seconds(*one)).sum()
        };
        let [switches, hosts] = &self.daemons;
        Ok([of(switches)?, of(hosts)?, of(&[std::process::id()])?])
    }

    /// What the last vectors through the switches cost, and whom.
    pub(super) fn spent(&self) -> Option<String> {
        let Spent { elapsed, ran, .. } = self.spent;
        let [switches, hosts, ranks] = ran.map(|it| it / elapsed * 100.0);
        (elapsed > 0.0).then(|| {
            format!(
                "turns through the switches, checks of their results included, kept switchd busy \
                 for {switches:.0} % of a core, hostd for {hosts:.0} %, the ranks for {ranks:.0} %"
            )
        })
    }

    /// Ends all and takes the laboratory down.
    pub(super) fn down(self) -> Result<(), String> {
        let Self {
            ours, theirs, lab, ..
        } = self;
        drop((ours, theirs));
        lab.down().map_err(|error| error.to_string())
    }
}
