use super::*;
use common::config::Settings;
use common::schedulers::PauseAnnouncement;
use common::time::Span;
use common::units::Rate;
use common::wire::compute::DSCP;
use common::wire::schedule::{PauseTerms, Role};
use common::xdp::limits::RING_MAX;
use switchd::config::{Config, PortFacts};
use switchd::limits::CELL;
use switchd::tables::policy::Schedule;

/// SW-40: all daemons of a laboratory that computes take their configuration. The hosts of a
/// leaf ask it at one address, and leaves ask all spines.
#[test]
fn laboratories_compute() {
    let options = Options {
        hosts: 4,
        compute: true,
        ..Options::default()
    };
    let plan = Topology::plan(&options);
    for node in plan.nodes.iter().filter(|node| node.role.is_switch()) {
        let config: Config = switchd(&options, &plan, node).try_into().unwrap();
        assert_eq!(config.validate(), Ok(()), "{}", node.name);
        let parents = match node.role {
            NodeRole::Leaf => usize::from(options.spines),
            _ => 0,
        };
        assert_eq!(config.compute.parents.len(), parents, "{}", node.name);
    }
    let leaf = |host: &str| {
        let table = hostd(&options, &plan, plan.known(host).unwrap());
        table["collective"]["leaf"].as_str().map(str::to_owned)
    };
    assert_eq!(leaf("h1"), leaf("h2"));
    assert_eq!(leaf("h3").as_deref(), Some("10.2.3.1"));
}

/// SW-40: whatever the classes of a laboratory, jobs have a queue that best effort, hostd's data
/// and its acknowledgements do not have, and hosts and switches send them with the same DSCP.
/// Where queues have weights, that of jobs has one.
#[test]
fn jobs_have_a_queue_of_their_own() {
    for qos in [Qos::Plain, Qos::Uet, Qos::Lossless] {
        let options = Options {
            compute: true,
            qos,
            ..Options::default()
        };
        let plan = Topology::plan(&options);
        let host = hostd(&options, &plan, plan.known("h1").unwrap());
        assert!(!host["collective"].as_table().unwrap().contains_key("dscp"));
        for node in plan.nodes.iter().filter(|node| node.role.is_switch()) {
            let config: Config = switchd(&options, &plan, node).try_into().unwrap();
            assert_eq!(config.compute.dscp, DSCP, "{qos:?}");
            let facts = facts(&options, &plan, node, &config);
            let policy = config.qos.compile(&facts).unwrap().policy;
            let class = |dscp| policy.classify.class_of_dscp(dscp);
            let jobs = class(config.compute.dscp);
            let others = [0, 26, 46].map(class);
            assert!(!others.contains(&jobs), "{qos:?}: {jobs} of {others:?}");
            let schedule = policy.ports[0].queues[usize::from(jobs)].schedule;
            let strict = schedule == Schedule::Strict;
            assert_eq!(strict, qos == Qos::Plain, "{qos:?}: {schedule:?}");
        }
    }
}

/// What the peer of a port of `node` tells of pauses: hostd as it is shipped, or the switch
/// with the configuration that it gets.
fn told(options: &Options, plan: &Topology, port: &PortFacts, node: &Node) -> PauseTerms {
    let peer = plan.known(&port.name).unwrap();
    if !peer.role.is_switch() {
        return PauseTerms {
            response: None,
            backlog: 131_072,
        };
    }
    let config: Config = switchd(options, plan, peer).try_into().unwrap();
    let facts = facts(options, plan, peer, &config);
    let its = facts.iter().find(|facts| facts.name == node.name);
    config.qos.pause_terms(its.unwrap()).unwrap()
}

/// The ports of a switch. A veth says 10 Gb/s of itself.
fn facts(options: &Options, plan: &Topology, node: &Node, config: &Config) -> Vec<PortFacts> {
    let names: Vec<String> = plan
        .ends(&node.name)
        .map(|end| end.interface.clone())
        .collect();
    let ports = config.resolve_ports(&names).unwrap();
    let mtu = u16::try_from(options.mtu).unwrap();
    let device = Some(Rate::from_gbps(10));
    let facts = ports.iter().map(|port| config.facts(port, device, mtu));
    facts.collect()
}

/// SW-12: the switches of a lossless laboratory are told nothing of their peers; with what
/// these announce, headroom and thresholds fit the buffer, nobody gets less than it says, and
/// receive rings are as long as they need.
#[test]
fn switches_of_a_lossless_laboratory_plan_with_what_peers_announce() {
    for (hosts, speed) in [(4, 100_000_000), (8, 100_000_000), (4, 1_000_000_000)] {
        let options = Options {
            hosts,
            speed,
            qos: Qos::Lossless,
            ..Options::default()
        };
        let plan = Topology::plan(&options);
        for node in plan.nodes.iter().filter(|node| node.role.is_switch()) {
            let config: Config = switchd(&options, &plan, node).try_into().unwrap();
            assert_eq!(config.validate(), Ok(()), "{}", node.name);
            let default = Config::default().qos.headroom;
            let headroom = &config.qos.headroom;
            assert!(config.scheduling.announce && headroom.port.is_empty());
            assert_eq!(
                (headroom.peer, headroom.announced_percent),
                (default.peer, default.announced_percent)
            );
            let facts = facts(&options, &plan, node, &config);
            let mut fitted = config.fit(facts, None).unwrap();
            assert_eq!(fitted.longest_ring, RING_MAX, "{}", node.name);
            for facts in &mut fitted.facts {
                facts.announced = Some(PauseAnnouncement {
                    role: Role::Switch,
                    name: facts.name.clone(),
                    terms: told(&options, &plan, facts, node),
                });
            }
            let compiled = config.qos.compile(&fitted.facts).unwrap();
            let of_peers = |it: &&String| it.contains("announce");
            assert_eq!(compiled.warnings.iter().find(of_peers), None);
            let late = Rate::from_bps(speed).bytes_in(Span::from_millis(20));
            for (facts, planned) in fitted.facts.iter().zip(&compiled.headroom) {
                let planned = planned.as_ref().expect("computed");
                let said = facts.announced.as_ref().expect("told").terms;
                let backlog = planned.made_of.peer_backlog.bytes;
                assert_eq!(planned.made_of.response.bytes, late, "{}", facts.name);
                assert_eq!(backlog, u64::from(said.backlog), "{}", facts.name);
                let from = format!("announced by {}", facts.name);
                assert_eq!(planned.backlog_from, from);
            }
            let service = u64::from(compiled.policy.regions.service) * CELL as u64;
            let xoff = Lossless::of(&options).xoff;
            assert!(service >= xoff * fitted.facts.len() as u64, "{}", node.name);
        }
    }
}
