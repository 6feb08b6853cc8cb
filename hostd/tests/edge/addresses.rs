//! The port as applications see it, the addresses that they choose, and what they are told.

use crate::ends;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::abi::port::GIDS_MAX;
use hostd_client::{
    Access, ByHand, CompletionQueue, CompletionStatus, Context, Error, ErrorCode, PortEvent,
    PortState, Private, QueuePair, QueuePairAttributes, QueuePairOptions, QueuePairState,
    ReceiveRequest, Region, SendRequest,
};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// Another address of a host.
fn second(daemon: &Daemon) -> IpAddr {
    let IpAddr::V4(first) = daemon.address else {
        unreachable!("hosts have IPv4 addresses");
    };
    let [a, b, c, d] = first.octets();
    IpAddr::from([a, b, c, d + 100])
}

/// Gives a host its second address, and an IPv6 one.
fn give_second(daemon: &Daemon) -> IpAddr {
    let v6 = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    let second = second(daemon);
    let all = [(v6, 64), (second, 16), (daemon.address, 24)];
    assert!(daemon.port.follow(all.into_iter()));
    second
}

struct End {
    context: Context,
    completions: CompletionQueue,
    region: Region,
    queue_pair: QueuePair,
}

fn end(daemon: &Daemon) -> End {
    let context = daemon.application();
    let completions = context.create_completion_queue(16).expect("room");
    let region = context.allocate(4096, Access::LOCAL_WRITE).expect("memory");
    let options = QueuePairOptions::default();
    let queue_pair = context
        .create_queue_pair(&completions, &completions, options)
        .expect("room");
    End {
        context,
        completions,
        region,
        queue_pair,
    }
}

fn refusal(outcome: Result<(), Error>) -> (ErrorCode, String) {
    match outcome {
        Err(Error::Refused { code, text }) => (code, text),
        other => panic!("{other:?}"),
    }
}

/// HT-1: an application chooses a partition of its port, and who accepts follows it. An index
/// without a key is refused by name, and so is a queue pair that is connected already.
#[test]
fn applications_choose_partitions() {
    let mut config = config();
    config.transport.partitions = vec![0xffff, 0x8005];
    let (a, b) = pair(&config);
    let memory = (4096, Access::LOCAL_WRITE);
    let [mut first, mut second] = [&a, &b].map(|it| ends::End::new(it, 8, memory));
    assert_eq!(first.context.partitions().expect("told"), [0xffff, 0x8005]);
    let (code, text) = refusal(first.queue_pair.choose_partition(2));
    assert_eq!(code, ErrorCode::NotFound);
    assert!(text.contains("transport.partitions"), "{text}");
    first.queue_pair.choose_partition(1).expect("it is there");
    first.connect(&mut second, b.address);
    refusal(first.queue_pair.choose_partition(0));
}

/// HT-1: an application reads the port, its GIDs with their index, and its partition keys; what it
/// asks beyond the tables is refused.
#[test]
fn applications_read_the_port() {
    let (a, _b) = pair(&config());
    let second = give_second(&a);
    let context = a.application();
    let port = context.port().expect("told");
    assert_eq!(port.interface, "cable");
    assert_eq!(port.state, PortState::Active);
    assert_eq!((port.mtu, port.path_mtu), (3000, 2048));
    assert_eq!(port.speed, 10_000_000_000);
    assert_eq!(port.mac, [2, 0, 0, 0, 0, 1]);
    assert_eq!((port.gids, port.partitions), (3, 1));
    assert_eq!(context.partitions().expect("told"), [0xffff]);
    let gids = context.gids().expect("told");
    let seen: Vec<_> = gids
        .iter()
        .map(|gid| (gid.index, gid.raw().to_string(), gid.prefix_len))
        .collect();
    // The first was there before the others.
    let mapped = |address| format!("::ffff:{address}");
    let expected = [
        (0, mapped(a.address), 24),
        (1, mapped(second), 16),
        (2, "fd00::7".to_owned(), 64),
    ];
    assert_eq!(seen, expected);
    assert!(
        gids.iter()
            .all(|gid| gid.interface == "cable" && gid.state == PortState::Active)
    );
    let many = (0..300_u16).map(|n| {
        let [high, low] = n.to_be_bytes();
        (IpAddr::from([10, 7, high, low]), 32)
    });
    a.port.follow(many);
    let gids = context.gids().expect("told");
    assert_eq!(gids.len(), usize::from(GIDS_MAX));
    assert!(gids.iter().zip(0..).all(|(gid, index)| gid.index == index));
}

/// Sends a message and checks what arrives.
fn talk(from: &mut End, to: &mut End) {
    let local = to.region.slice(0, 100).expect("inside");
    let receive = ReceiveRequest { wr_id: 1, local };
    to.queue_pair.post_receive(&receive).expect("room");
    from.region.write(0, &[0x5a; 100]).expect("inside");
    let send = SendRequest::send(2, from.region.slice(0, 100).expect("inside"));
    from.queue_pair.post_send(&send).expect("room");
    for (end, wr_id) in [(from, 2), (&mut *to, 1)] {
        let done = end.completions.next(PATIENCE).expect("it completes");
        assert_eq!(
            (done.wr_id, done.status),
            (wr_id, CompletionStatus::Success)
        );
    }
    let mut bytes = [0; 100];
    to.region.read(0, &mut bytes).expect("inside");
    assert_eq!(bytes, [0x5a; 100]);
}

/// HT-1: a queue pair connects from the address that it is bound to, which the listener sees, to a
/// listener at one address of its host, which is nowhere else.
#[test]
fn queue_pairs_connect_between_chosen_addresses() {
    let (a, b) = pair(&config());
    let [from, to] = [give_second(&a), give_second(&b)];
    let mut client = end(&a);
    let mut server = end(&b);
    let listener = server.context.listen(to, 0, 4).expect("a GID");
    let busy = server.context.listen(ANY, listener.port(), 4);
    assert_eq!(refusal(busy.map(drop)).0, ErrorCode::AddressInUse);

    let elsewhere = SocketAddr::new(b.address, listener.port());
    let mut other = end(&a);
    let refused = other
        .queue_pair
        .connect(elsewhere, Private::EMPTY, PATIENCE);
    let Err(Error::ConnectFailed { reason, rej: 8, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(reason, ErrorCode::Refused);

    client.queue_pair.bind(b.address).expect_err("not own");
    client.queue_pair.bind(a.address).expect("own");
    client.queue_pair.bind(from).expect("the last one counts");
    let there = SocketAddr::new(to, listener.port());
    std::thread::scope(|scope| {
        let client = &mut client;
        scope.spawn(move || {
            let connected = client.queue_pair.connect(there, Private::EMPTY, PATIENCE);
            assert_eq!(connected.expect("connected").peer, to);
        });
        let request = listener.get_request(PATIENCE).expect("a request");
        assert_eq!(request.peer(), from);
        request
            .accept(&mut server.queue_pair, Private::EMPTY, PATIENCE)
            .expect("accepted");
    });
    talk(&mut client, &mut server);
    talk(&mut server, &mut client);
    let (code, text) = refusal(client.queue_pair.bind(a.address));
    assert_eq!(code, ErrorCode::InvalidState, "{text}");
    for (daemon, [local, remote]) in [(&a, [from, to]), (&b, [to, from])] {
        let report = daemon.report();
        let mut pairs = report.queue_pairs.iter().map(|(_, pair, _)| pair);
        assert!(pairs.any(|pair| (pair.local, pair.remote) == (Some(local), Some(remote))));
    }
}

/// HT-1: an address that is none of the interface, or is not any more, or of another family than
/// the peer's, is refused by name: for connections, listeners and queue pairs by hand.
#[test]
fn addresses_that_are_not_own_are_refused_by_name() {
    let (a, b) = pair(&config());
    let from = give_second(&a);
    let mut end = end(&a);
    let strange = IpAddr::from([192, 0, 2, 1]);
    let named = |outcome: Result<(), Error>, address: IpAddr| {
        let (code, text) = refusal(outcome);
        assert_eq!(code, ErrorCode::InvalidArgument);
        assert!(
            text.starts_with(&format!("{address} is no address of cable")),
            "{text}"
        );
    };
    named(end.queue_pair.bind(strange), strange);
    named(end.context.listen(strange, 0, 1).map(drop), strange);
    let by_hand = ByHand::new(strange, b.address);
    named(end.queue_pair.connect_by_hand(&by_hand), strange);

    let v6 = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    end.queue_pair.bind(v6).expect("own");
    let peer = SocketAddr::new(b.address, 7);
    let connect = |end: &mut End| {
        let outcome = end.queue_pair.connect(peer, Private::EMPTY, PATIENCE);
        outcome.map(drop)
    };
    let by_hand = |end: &mut End| {
        let attributes = QueuePairAttributes {
            destination: Some(b.address),
            destination_number: Some(17),
            rq_psn: Some(1),
            path_mtu: Some(1024),
            min_rnr_timer: Some(12),
            max_dest_rd_atomic: Some(1),
            ..QueuePairAttributes::default()
        };
        end.queue_pair
            .modify(QueuePairState::ReadyToReceive, &attributes)
    };
    for outcome in [connect(&mut end), by_hand(&mut end)] {
        let (code, text) = refusal(outcome);
        assert_eq!(code, ErrorCode::InvalidArgument);
        assert!(
            text.contains("fd00::7") && text.contains("family"),
            "{text}"
        );
    }
    end.queue_pair.bind(from).expect("own");
    a.port.follow([(a.address, 24)].into_iter());
    named(connect(&mut end), from);
    named(by_hand(&mut end), from);
    give_second(&a);
    by_hand(&mut end).expect("own again");
    let report = a.report();
    assert_eq!(report.queue_pairs[0].1.local, Some(from));
}

/// HT-1, HT-3: who asks for events of the port is told each kind once until it looks; who does not
/// ask is told nothing; who does not read loses those events, which is counted, and nothing else.
#[test]
fn events_of_the_port_are_for_those_who_ask() {
    let (a, _b) = pair(&config());
    let [told, quiet, deaf] = [a.application(), a.application(), a.application()];
    let moment = Duration::from_millis(50);
    told.watch_port(true).expect("possible");
    deaf.watch_port(true).expect("possible");
    for event in PortEvent::ALL {
        a.announce(event);
        assert_eq!(told.next_port_event(PATIENCE).expect("told"), event);
    }
    for event in [PortEvent::Error, PortEvent::Active, PortEvent::Error] {
        a.announce(event);
    }
    let mut seen = [0; 2].map(|_| told.next_port_event(PATIENCE).expect("told"));
    seen.sort_by_key(|event| *event as u8);
    assert_eq!(seen, [PortEvent::Active, PortEvent::Error]);
    while told.next_port_event(moment).is_ok() {}
    told.watch_port(false).expect("possible");
    a.announce(PortEvent::Error);
    for context in [&told, &quiet] {
        let none = context.next_port_event(moment);
        assert!(matches!(none, Err(Error::TimedOut)), "{none:?}");
    }
    let before = a.socket_statistics();
    assert_eq!(before.untold, 0);
    for _ in 0..20_000 {
        a.announce(PortEvent::Changed);
    }
    let after = a.socket_statistics();
    assert!(after.untold > 10_000, "{after:?}");
    assert_eq!(after.stalled, before.stalled);
    assert_eq!(deaf.port().expect("it lives").state, PortState::Active);
}
