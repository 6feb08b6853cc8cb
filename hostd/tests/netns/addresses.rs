//! Several addresses of an interface, which come and go while hostd runs, and what applications are
//! told of their port.

use super::*;
use hostd_client::{
    Access, CompletionStatus, Context, Error, PortEvent, PortState, Private, QueuePair,
    QueuePairOptions, ReceiveRequest, SendRequest,
};
use std::net::{IpAddr, SocketAddr};

fn application(host: &Host) -> Context {
    Context::connect(&host.folder.path().join("hostd.sock")).expect("it runs")
}

/// What `hostctl show gids` says: index and address of each.
fn gids(host: &Host) -> Vec<(u64, String)> {
    let rows = host.show("gids");
    let row = |row: &Value| {
        let index = row["index"].as_u64().expect("a number");
        (index, row["address"].as_str().expect("text").to_owned())
    };
    rows.iter().map(row).collect()
}

/// The index of an address.
fn index(host: &Host, address: &str) -> Option<u64> {
    let found = gids(host).into_iter().find(|(_, own)| own == address);
    found.map(|(index, _)| index)
}

/// Sends a message over a connection from one address to another, and returns the ends that both
/// daemons tell of it.
fn message(from: (&Host, Option<&str>), to: (&Host, &str)) -> [(String, String); 2] {
    let (contexts, peer) = ([application(from.0), application(to.0)], to.1);
    let address: IpAddr = peer.parse().expect("an address");
    let listener = contexts[1].listen(address, 0, 1).expect("a GID");
    let there = SocketAddr::new(address, listener.port());
    let queues = contexts.each_ref().map(|context| {
        let queue = context.create_completion_queue(4).expect("room");
        let options = QueuePairOptions::default();
        let pair = context.create_queue_pair(&queue, &queue, options);
        let region = context.allocate(9000, Access::LOCAL_WRITE);
        (queue, pair.expect("room"), region.expect("memory"))
    });
    let [
        (mut sent, mut client, source),
        (mut received, mut server, target),
    ] = queues;
    if let Some(own) = from.1 {
        let own = own.parse().expect("an address");
        client.bind(own).expect("own");
    }
    let all = |region: &hostd_client::Region| region.slice(0, 9000).expect("inside");
    let local = all(&target);
    let receive = ReceiveRequest { wr_id: 1, local };
    server.post_receive(&receive).expect("room");
    std::thread::scope(|scope| {
        let client: &mut QueuePair = &mut client;
        scope.spawn(move || {
            let connected = client.connect(there, Private::EMPTY, PATIENCE);
            connected.expect("connected");
        });
        let request = listener.get_request(PATIENCE).expect("a request");
        let accepted = request.accept(&mut server, Private::EMPTY, PATIENCE);
        accepted.expect("accepted");
    });
    let bytes: Vec<u8> = (0..=250_u8).cycle().take(9000).collect();
    source.write(0, &bytes).expect("inside");
    let send = SendRequest::send(2, all(&source));
    client.post_send(&send).expect("room");
    for queue in [&mut sent, &mut received] {
        let done = queue.next(PATIENCE).expect("it completes");
        assert_eq!(done.status, CompletionStatus::Success);
    }
    let mut found = vec![0; 9000];
    target.read(0, &mut found).expect("inside");
    assert!(found == bytes, "the bytes that were sent");
    [(from.0, client.number()), (to.0, server.number())].map(|(host, number)| {
        let rows = host.show("qps");
        let row = rows.iter().find(|row| row["qpn"] == number);
        let row = row.expect("it is shown");
        let end = |key: &str| row[key].as_str().expect("an address").to_owned();
        (end("local"), end("peer"))
    })
}

/// HT-1: a peer that answers to address resolution only after the kernel has given up for the first
/// time, as on a link that has just come up, is reached all the same.
#[test]
fn a_late_neighbour_is_asked_again() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let [a, b] = &link.hosts;
    let answers = |ignore: u8| {
        let line = format!("sysctl -qw net.ipv4.conf.eth0.arp_ignore={ignore}");
        b.namespace.run(&line).expect("it succeeds");
    };
    answers(8);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The kernel asks for 3 s.
            std::thread::sleep(Duration::from_millis(3300));
            answers(0);
        });
        message((a, None), (b, "10.9.0.2"));
    });
}

/// HT-1, MG-1: an application connects from each of the addresses of an interface to each of
/// another's, over IPv4 and IPv6. Addresses that come and go are followed; others keep their index.
#[test]
fn addresses_of_an_interface_are_chosen_and_followed() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let [a, b] = &link.hosts;
    let context = application(a);
    context.watch_port(true).expect("possible");
    let change = |host: &Host, what: &str| {
        let nodad = if what.contains(':') { " nodad" } else { "" };
        let line = format!("ip address {what} dev eth0{nodad}");
        host.namespace.run(&line).expect("it succeeds");
    };
    let told = || {
        let event = context.next_port_event(PATIENCE).expect("told");
        assert_eq!(event, PortEvent::GidChange);
    };
    let first = index(a, "10.9.0.1").expect("listed");
    for (host, last) in [(a, 1), (b, 2)] {
        for added in [format!("10.9.0.1{last}/24"), format!("fd09::1{last}/64")] {
            change(host, &format!("add {added}"));
            let (address, _) = added.split_once('/').expect("a prefix");
            host.wait_for(address, || index(host, address).is_some());
        }
    }
    told();
    let second = index(a, "10.9.0.11").expect("listed");
    for (own, peer) in [
        (None, "10.9.0.12"),
        (Some("10.9.0.11"), "10.9.0.2"),
        (Some("10.9.0.11"), "10.9.0.12"),
        (Some("fd09::11"), "fd09::12"),
        (Some("fd09::1"), "fd09::12"),
    ] {
        let from = own.unwrap_or("10.9.0.1").to_owned();
        let ends = message((a, own), (b, peer));
        let peer = peer.to_owned();
        assert_eq!(ends, [(from.clone(), peer.clone()), (peer, from)]);
    }
    while context.next_port_event(Duration::from_millis(100)).is_ok() {}
    change(a, "del 10.9.0.11/24");
    told();
    assert_eq!(index(a, "10.9.0.11"), None);
    let queue = context.create_completion_queue(4).expect("room");
    let options = QueuePairOptions::default();
    let pair = context.create_queue_pair(&queue, &queue, options);
    let mut pair = pair.expect("room");
    let refused = pair.bind("10.9.0.11".parse().expect("an address"));
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(index(a, "10.9.0.1"), Some(first), "the others stay");
    change(a, "add 10.9.0.21/24");
    told();
    assert_eq!(index(a, "10.9.0.21"), Some(second), "the free index");
    message((a, Some("10.9.0.21")), (b, "10.9.0.12"));
    let raw = a.show("gids").into_iter().map(|row| row["gid"].to_string());
    assert!(raw.into_iter().any(|gid| gid == "\"::ffff:10.9.0.21\""));
}

/// HT-1, MG-4: applications that ask are told when the port loses its carrier or is set down, when
/// packets can pass again, and when its MTU is another one; what they read of it then is so.
#[test]
fn applications_are_told_of_their_link() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let [a, b] = &link.hosts;
    let contexts = [a, b].map(application);
    for context in &contexts {
        context.watch_port(true).expect("possible");
        assert_eq!(context.port().expect("told").state, PortState::Active);
    }
    // IPv6 addresses come and go with the link.
    let until = |context: &Context, wanted: PortEvent| {
        while context.next_port_event(PATIENCE).expect("told") != wanted {}
        context.port().expect("told")
    };
    for _ in 0..3 {
        b.namespace.run("ip link set eth0 down").expect("down");
        assert_eq!(
            until(&contexts[0], PortEvent::Error).state,
            PortState::NoCarrier
        );
        assert_eq!(until(&contexts[1], PortEvent::Error).state, PortState::Down);
        b.namespace.run("ip link set eth0 up").expect("up");
        for context in &contexts {
            assert_eq!(until(context, PortEvent::Active).state, PortState::Active);
        }
    }
    for (mtu, path_mtu) in [(1500, 1024), (9000, 2048), (3000, 2048)] {
        let line = format!("ip link set eth0 mtu {mtu}");
        a.namespace.run(&line).expect("it succeeds");
        let port = until(&contexts[0], PortEvent::Changed);
        // The frames were made for the MTU at the start.
        assert_eq!((port.mtu, port.path_mtu), (mtu, path_mtu));
    }
}

/// HT-1: rules of the kernel that look at the source (`ip rule from`) decide on the way of packets
/// from the addresses that they name, and of no others, also where a peer connects to such an
/// address. What the kernel changes is followed.
#[test]
fn rules_that_look_at_the_source_are_followed() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let [a, b] = &link.hosts;
    let run = |host: &Host, line: &str| host.namespace.run(line).expect("it succeeds");
    run(a, "ip address add 10.9.0.11/24 dev eth0");
    a.wait_for("the address", || index(a, "10.9.0.11").is_some());
    let connect = |own: Option<&str>| {
        let context = application(a);
        let listener = application(b).listen("10.9.0.2".parse().expect("v4"), 0, 1);
        let listener = listener.expect("a GID");
        let queue = context.create_completion_queue(4).expect("room");
        let options = QueuePairOptions::default();
        let pair = context.create_queue_pair(&queue, &queue, options);
        let mut pair = pair.expect("room");
        if let Some(own) = own {
            pair.bind(own.parse().expect("v4")).expect("own");
        }
        let there = SocketAddr::new("10.9.0.2".parse().expect("v4"), listener.port());
        pair.connect(there, Private::EMPTY, PATIENCE)
    };
    message((a, Some("10.9.0.11")), (b, "10.9.0.2"));
    // Nobody has the address of this gateway.
    run(a, "ip route add 10.9.0.2 via 10.9.0.99 dev eth0 table 100");
    run(a, "ip rule add from 10.9.0.11 lookup 100");
    let led_away = |own| matches!(connect(own), Err(Error::Refused { text, .. }) if text.contains("10.9.0.99"));
    a.wait_for("the rule", || led_away(Some("10.9.0.11")));
    for own in [Some("10.9.0.1"), None] {
        let ends = message((a, own), (b, "10.9.0.2"));
        assert_eq!(ends[0].0, "10.9.0.1");
    }
    // Also of the address that the kernel chooses.
    run(a, "ip rule add from 10.9.0.1 lookup 100");
    a.wait_for("the second rule", || led_away(None));
    run(a, "ip rule del from 10.9.0.1 lookup 100");
    a.wait_for("no such rule", || !led_away(None));
    let shown = run(b, "ip -o link show eth0");
    let (_, mac) = shown.split_once("link/ether ").expect("it has one");
    let line = format!("ip neigh replace 10.9.0.99 lladdr {} dev eth0", &mac[..17]);
    run(a, &line);
    message((a, Some("10.9.0.11")), (b, "10.9.0.2"));
    message((b, None), (a, "10.9.0.11"));
    run(a, "ip rule del from 10.9.0.11 lookup 100");
    run(a, "ip neigh del 10.9.0.99 dev eth0");
    message((a, Some("10.9.0.11")), (b, "10.9.0.2"));
}
