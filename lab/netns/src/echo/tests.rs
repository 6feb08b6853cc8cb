use super::*;
use crate::{Namespace, privileged};

const SOON: Duration = Duration::from_millis(5);

/// Two namespaces joined by a cable; the second has 10.8.0.2 and fd08::2.
fn cable(names: [&str; 2]) -> [Namespace; 2] {
    let made = names.map(|name| Namespace::new("netns-test", name).expect("root may"));
    let [a, b] = [made[0].name(), made[1].name()];
    for line in [
        format!("ip link add eth0 netns {a} type veth peer name eth0 netns {b}"),
        format!("ip -n {a} address add 10.8.0.1/24 dev eth0"),
        format!("ip -n {b} address add 10.8.0.2/24 dev eth0"),
        format!("ip -n {a} address add fd08::1/64 dev eth0 nodad"),
        format!("ip -n {b} address add fd08::2/64 dev eth0 nodad"),
        format!("ip -n {a} link set lo up"),
        format!("ip -n {a} link set eth0 up"),
        format!("ip -n {b} link set eth0 up"),
    ] {
        crate::run(&line).expect("it succeeds");
    }
    made
}

fn echo(to: &str, count: u16) -> Echo {
    Echo::new(to.parse().expect("an address"), count, SOON)
}

#[test]
fn replies_are_counted_with_their_hops() {
    if !privileged() {
        return;
    }
    let [a, _b] = cable(["echo-1", "echo-2"]);
    for (to, from) in [("10.8.0.2", "10.8.0.1"), ("fd08::2", "fd08::1")] {
        let mut echo = echo(to, 20);
        echo.from = Some(from.parse().expect("an address"));
        // Two at once do not take each other's replies.
        let pings = [echo.start(a.name()), echo.start(a.name())];
        for ping in pings {
            let seen = ping.finish().expect("possible");
            assert_eq!((seen.sent, seen.received), (20, 20), "{seen:?}");
            assert_eq!((seen.refused, seen.duplicates), (0, 0));
            assert_eq!(seen.hops, [64].into());
            assert!(seen.time > Duration::ZERO);
        }
    }
}

/// Answers two requests in the namespace, the second after a wait; its kernel answers none.
fn answer_late(name: &str) -> std::thread::JoinHandle<io::Result<()>> {
    let icmp = || {
        let flags = SockFlag::SOCK_CLOEXEC;
        socket(
            AddressFamily::Inet,
            SockType::Raw,
            flags,
            SockProtocol::Icmp,
        )
    };
    let socket = crate::inside(name, icmp)
        .expect("root may")
        .expect("a socket");
    std::thread::spawn(move || {
        for wait in [0, 500] {
            let mut packet = [0; 20 + LEN];
            while packet[20] != 8 {
                nix::sys::socket::recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty())?;
            }
            std::thread::sleep(Duration::from_millis(wait));
            let reply = &mut packet[20..];
            (reply[0], reply[2], reply[3]) = (0, 0, 0);
            let sum = checksum(reply);
            reply[2..4].copy_from_slice(&sum.to_be_bytes());
            let to = SocketAddr::from(([10, 8, 0, 1], 0));
            let to = SockaddrStorage::from(to);
            sendto(socket.as_raw_fd(), reply, &to, MsgFlags::empty())?;
        }
        Ok(())
    })
}

/// The last reply comes after a hundred intervals: it was late, not lost. One that never comes is
/// lost.
#[test]
fn late_is_not_lost() {
    if !privileged() {
        return;
    }
    let [a, b] = cable(["echo-3", "echo-4"]);
    b.run("sysctl -qw net.ipv4.icmp_echo_ignore_all=1")
        .expect("it succeeds");
    let answers = answer_late(b.name());
    let echo = echo("10.8.0.2", 2);
    let seen = echo.start(a.name()).finish().expect("possible");
    assert_eq!(seen.lost(), 0, "{seen:?}");
    assert!(seen.time >= Duration::from_millis(500), "{seen:?}");
    answers.join().expect("no panic").expect("possible");
    let seen = echo.start(a.name()).finish().expect("possible");
    assert_eq!((seen.received, seen.refused, seen.lost()), (0, 0, 2));
}

#[test]
fn errors_end_the_wait() {
    if !privileged() {
        return;
    }
    let [a, _b] = cable(["echo-5", "echo-6"]);
    // No route; a route that answers with an error.
    for line in ["ip route add unreachable 10.88.0.0/16", "ip link set lo up"] {
        a.run(line).expect("it succeeds");
    }
    for to in ["10.99.0.1", "10.88.0.1", "fd99::1"] {
        let seen = echo(to, 3).start(a.name()).finish().expect("possible");
        assert_eq!((seen.received, seen.refused), (0, 3), "{to}: {seen:?}");
        assert_eq!(seen.lost(), 3);
    }
}

#[test]
fn the_sum_is_that_of_the_internet() {
    // The example of RFC 1071, 3.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum(&bytes), !0xddf2);
}
