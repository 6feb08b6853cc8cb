//! Congestion control that applications choose for their queue pairs (CC-1 to CC-8, HT-33).

use crate::connection::{both, config, connect_with};
use crate::network::{Impairment, Network};
use hostd::engine::NotSteered;
use hostd::stats::QueuePairStatistics;
use hostd::verbs::{
    Congestion, EngineConfig, EngineError, MultipathConfig, ReadyToSend, SendOpcode, State,
    Transition,
};

const SEND: ReadyToSend = ReadyToSend {
    sq_psn: 7,
    timeout: 14,
    retry_count: 7,
    rnr_retry: 7,
    max_rd_atomic: 1,
};

fn standing(network: &Network, host: usize, qpn: u32) -> QueuePairStatistics {
    let engine = &network.hosts[host].engine;
    engine.queue_pair_statistics(qpn).expect("it exists")
}

/// CC-1 to CC-8: each algorithm that a host has and allows can be chosen before there is a
/// connection, for what this side sends alone; of the others it is said why not. A reset forgets
/// the choice.
#[test]
fn a_queue_pair_is_steered_as_its_application_chose() {
    for (seed, wanted) in (0..).zip(Congestion::ALL) {
        let mut network = Network::new(seed, both());
        let mut chosen = Ok(());
        let (qpns, _) = connect_with(&mut network, |hosts, qpns| {
            chosen = hosts[0].engine.choose_congestion(qpns[0], wanted);
        });
        let expected = match wanted {
            Congestion::Fixed => Err("\"fixed\" is not among application.congestion of this hostd"),
            Congestion::SwiftCsig | Congestion::Poseidon => Err("[csig] has to be enabled"),
            Congestion::Hpcc => Err("[int] has to be enabled"),
            _ => Ok(()),
        };
        let steered = match (chosen, expected) {
            (Ok(()), Ok(())) => wanted,
            (Err(refused), Err(text)) => {
                assert!(refused.to_string().contains(text), "{refused}");
                Congestion::Auto
            }
            (chosen, _) => panic!("{}: {chosen:?}", wanted.name()),
        };
        let names = [0, 1].map(|host| standing(&network, host, qpns[host]).congestion);
        assert_eq!(names, [steered.name(), Congestion::Auto.name()]);
        let engine = &mut network.hosts[0].engine;
        let late = engine.choose_congestion(qpns[0], Congestion::Nscc);
        assert_eq!(late, Err(NotSteered::Engine(EngineError::State)));
        let none = engine.choose_congestion(qpns[0] + 1, Congestion::Nscc);
        assert_eq!(none, Err(NotSteered::Engine(EngineError::Unknown)));
        network.close();
    }
}

/// A host's own algorithm may be chosen, whatever else is allowed; a queue pair that is reset
/// begins with it.
#[test]
fn the_host_decides_what_there_is_to_choose() {
    let own = EngineConfig {
        congestion: Congestion::Fixed,
        congestion_choices: Congestion::Swift.bit(),
        ..config(Some(MultipathConfig::default()))
    };
    let mut network = Network::new(1, [own.clone(), own]);
    let host = &mut network.hosts[0];
    let qpn = host.queue_pair();
    let mut choose = |congestion| host.engine.choose_congestion(qpn, congestion);
    let refused = Err(NotSteered::NotAllowed("nscc"));
    assert_eq!(choose(Congestion::Nscc), refused);
    assert_eq!(choose(Congestion::Fixed), Ok(()));
    assert_eq!(choose(Congestion::Swift), Ok(()));
    let engine = &mut host.engine;
    for transition in [
        Transition::Reset,
        Transition::Init(hostd::verbs::Access::ALL_REMOTE),
    ] {
        engine.modify_queue_pair(qpn, &transition).expect("legal");
    }
    let other = network.hosts[1].queue_pair();
    network.connect([qpn, other], Some(MultipathConfig::default()), SEND);
    let standing = standing(&network, 0, qpn);
    assert_eq!(
        (standing.state, standing.congestion),
        (State::ReadyToSend, "fixed")
    );
    network.close();
}

/// HT-33: queue pairs of one host go the same marked way; the one that goes by marks has a small
/// window at the end, the one of fixed size all of it, and the one that waits for marks says that
/// it goes by them.
#[test]
fn queue_pairs_of_a_host_are_steered_apart() {
    let mut own = config(Some(MultipathConfig::default()));
    own.congestion_choices = u16::MAX;
    let mut network = Network::new(3, [own.clone(), own]);
    network.impairment = Impairment {
        marks: 700,
        ..network.impairment.clone()
    };
    let pairs = [Congestion::Dctcp, Congestion::Fixed, Congestion::Auto].map(|congestion| {
        let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
        let engine = &mut network.hosts[0].engine;
        engine
            .choose_congestion(qpns[0], congestion)
            .expect("in INIT");
        network.connect(qpns, Some(MultipathConfig::default()), SEND);
        qpns[0]
    });
    let rkey = network.hosts[1].keys.rkey;
    for number in 0..40 {
        for qpn in pairs {
            let mut write = network.hosts[0].send(number, 0, 100_000);
            (write.opcode, write.rkey) = (SendOpcode::RdmaWrite, rkey);
            network.hosts[0].engine.post_send(qpn, write).expect("room");
        }
        let all = 3 * usize::try_from(number + 1).expect("few");
        let done = network.run(common::time::Span::from_secs(5), |network| {
            network.hosts[0].completions.len() == all
        });
        assert!(done, "message {number}");
    }
    let stand = pairs.map(|qpn| standing(&network, 0, qpn));
    let names = stand.each_ref().map(|it| it.congestion);
    assert_eq!(names, ["dctcp", "fixed", "nscc"]);
    let windows = stand.map(|it| it.window);
    let most = EngineConfig::default().window;
    assert!(
        windows[0] < most / 8 && windows[1] == most && windows[2] < most,
        "{windows:?}"
    );
    network.close();
}
