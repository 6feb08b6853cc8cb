//! HT-3: connection requests, which the network sends as it likes, and applications that take their
//! time.

use crate::raw::{Raw, is_well, rings};
use crate::rig::{PATIENCE, config, pair};
use hostd_client::QueuePairOptions;
use hostd_client::abi::answer::{Event, FromDaemon, Reply};
use hostd_client::abi::message::Request;
use hostd_client::abi::types::{ErrorCode, Private};
use std::time::{Duration, Instant};

fn listen(port: u16, backlog: u16) -> Request {
    Request::Listen {
        address: "::".parse().expect("any"),
        port,
        backlog,
    }
}

/// HT-3: a listener whose application reads nothing for longer than it may leave a reply unread
/// keeps its session, however many connection requests come: the further ones are turned down.
#[test]
fn a_busy_listener_stays() {
    let mut config = config();
    config.application.reply_timeout_s = 1;
    let (a, _b) = pair(&config);
    let raw = Raw::greeted(&a);
    let reply = raw.ask(&listen(7, 1), &[]).0;
    assert!(matches!(reply, Reply::Listener { .. }), "{reply:?}");
    let session = a.report().sessions[0].session;
    let peer = "10.9.9.9".parse().expect("an address");
    for request in 0..10_000 {
        let private = Private::EMPTY;
        let event = Event::ConnectRequest {
            listener: 7,
            request,
            peer,
            private,
        };
        a.deliver(session, event);
    }
    std::thread::sleep(Duration::from_millis(2500));
    is_well(&a);
    let statistics = a.socket_statistics();
    assert_eq!(statistics.stalled, 0);
    assert!(statistics.unheard > 5_000, "{}", statistics.unheard);
    a.wait_for("the other session has gone", |report| {
        report.sessions.iter().map(|it| it.session).eq([session])
    });
    // It reads again, and is served.
    let mut events = 0;
    let ask = listen(5000, 1).encode(9);
    assert!(raw.send(ask.as_slice(), &[]));
    let mut heard = false;
    while !heard || events < 10_000 - statistics.unheard {
        match raw.next().expect("it is connected").0 {
            FromDaemon::Event(Event::ConnectRequest { .. }) => events += 1,
            FromDaemon::Reply(9, Reply::Listener { .. }) => heard = true,
            other => panic!("{other:?}"),
        }
    }
}

/// HT-3: an application that leaves its own replies unread is disconnected after a time.
#[test]
fn a_deaf_application_goes() {
    let mut config = config();
    config.application.reply_timeout_s = 1;
    let (a, _b) = pair(&config);
    let raw = Raw::greeted(&a);
    let request = Request::Disconnect { qp: 1 }.encode(3);
    while raw.send(request.as_slice(), &[]) {}
    let until = Instant::now() + PATIENCE;
    while a.socket_statistics().stalled == 0 {
        assert!(Instant::now() < until, "it stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    a.wait_empty();
}

/// HT-3: as many requests wait for a listener's answer as it asked for, and no more than 64 of one
/// peer's; the peer is told at once that the others are turned down.
#[test]
fn waiting_requests_are_bounded() {
    let (a, b) = pair(&config());
    for (port, backlog, waiting) in [(5000, 3, 3), (5001, 500, 64)] {
        let raw = Raw::greeted(&a);
        let reply = raw.ask(&listen(port, backlog), &[]).0;
        assert!(matches!(reply, Reply::Listener { .. }), "{reply:?}");
        let before = a.report().edge.refused_requests;
        let peer = Raw::greeted(&b);
        let count = waiting + 20;
        let mut turned_down = 0;
        let mut hear = |message: FromDaemon| match message {
            FromDaemon::Reply(_, Reply::Done) => {}
            FromDaemon::Event(Event::ConnectFailed { reason, .. }) => {
                // Nobody was asked.
                assert_eq!(reason, ErrorCode::Busy);
                turned_down += 1;
            }
            other => panic!("{other:?}"),
        };
        let queue_pairs: Vec<u32> = (0..count).map(|_| rings(&peer).handle).collect();
        for qp in queue_pairs {
            let request = Request::Connect {
                qp,
                address: a.address,
                port,
                private: Private::EMPTY,
            };
            assert!(peer.send(request.encode(9).as_slice(), &[]));
        }
        for _ in 0..count + 20 {
            hear(peer.next().expect("it is connected").0);
        }
        assert_eq!(turned_down, 20);
        assert_eq!(a.report().edge.refused_requests - before, 20);
        for _ in 0..waiting {
            let event = raw.next().expect("it is connected").0;
            assert!(matches!(
                event,
                FromDaemon::Event(Event::ConnectRequest { .. })
            ));
        }
    }
}

/// HT-1, HT-3: a peer is told at once that nobody will answer its request: the queue pair that it
/// was accepted with cannot be connected, the listener was dropped before or after the request
/// came, or its session ended. A request that was taken outlives its listener.
#[test]
fn peers_are_not_left_waiting() {
    let (a, b) = pair(&config());
    let any = "::".parse().expect("any");
    let peer = Raw::greeted(&b);
    let connect = |port: u16| {
        let request = Request::Connect {
            qp: rings(&peer).handle,
            address: a.address,
            port,
            private: Private::EMPTY,
        };
        let reply = peer.ask(&request, &[]).0;
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    };
    let turned_down = |how: &str| {
        let begin = Instant::now();
        match peer.next().expect("it is connected").0 {
            FromDaemon::Event(Event::ConnectFailed { reason, .. }) => {
                assert_eq!(reason, ErrorCode::Rejected, "{how}");
            }
            other => panic!("{how}: {other:?}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "{how}");
    };
    let context = a.application();
    let queue = context.create_completion_queue(8).expect("a queue");
    let options = QueuePairOptions::default();
    let pair = context.create_queue_pair(&queue, &queue, options);
    let mut pair = pair.expect("a queue pair");
    let listener = context.listen(any, 0, 8).expect("a listener");
    connect(listener.port());
    let taken = listener.get_request(PATIENCE).expect("a request");
    let before = a.report().engine.management;
    connect(listener.port());
    a.wait_for("it came", |report| report.engine.management > before);
    // It waits in the library, or is on its way there.
    drop(listener);
    turned_down("the listener was dropped");
    let accepted = taken.accept(&mut pair, Private::EMPTY, PATIENCE);
    accepted.expect("it was taken before");
    let event = peer.next().expect("it is connected").0;
    let established = matches!(event, FromDaemon::Event(Event::Established { .. }));
    assert!(established, "{event:?}");
    let raw = Raw::greeted(&a);
    let Reply::Listener { port, .. } = raw.ask(&listen(0, 8), &[]).0 else {
        panic!("no listener")
    };
    let asked = || match raw.next().expect("it is connected").0 {
        FromDaemon::Event(Event::ConnectRequest { request, .. }) => request,
        other => panic!("{other:?}"),
    };
    connect(port);
    let accept = Request::Accept {
        request: asked(),
        qp: 1,
        private: Private::EMPTY,
    };
    assert_eq!(raw.refused(&accept, &[]), ErrorCode::NotFound);
    turned_down("there is no such queue pair");
    connect(port);
    asked();
    drop(raw);
    turned_down("the session ended");
}

/// HT-3: a connection request of which an application was not told before its listener went is
/// turned down, and not told.
#[test]
fn requests_for_a_listener_that_went_are_not_told() {
    let (a, _b) = pair(&config());
    let raw = Raw::greeted(&a);
    let session = a.report().sessions[0].session;
    let event = |listener| Event::ConnectRequest {
        listener,
        request: 1,
        peer: "10.9.9.9".parse().expect("an address"),
        private: Private::EMPTY,
    };
    let reply = raw.ask(&listen(5000, 1), &[]).0;
    assert!(matches!(reply, Reply::Listener { .. }), "{reply:?}");
    for listener in [4999, 5000] {
        a.deliver(session, event(listener));
    }
    match raw.next().expect("it is connected").0 {
        FromDaemon::Event(told) => assert_eq!(told, event(5000)),
        other => panic!("{other:?}"),
    }
}
