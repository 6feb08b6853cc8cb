//! Connections with the guest from and to further addresses of hostd's interface, and over a link
//! that carries shorter packets than the guest asks for.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;

use lab::capture::dissect;
use lab::observe::rows;

use crate::classics::example;
use crate::dissection::{assert_well_formed, numbers, packets};
use crate::peer::Meeting;
use crate::rig::{self, LIMIT, Rig};
use crate::talk::Talk;

/// Where `rping` listens.
const PORT: u16 = 7175;

/// Another address beside one of h1.
fn beside(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::from((u32::from(v4) + 70).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((u128::from(v6) + 70).to_be_bytes()),
    }
}

/// Gives h1 another address, or takes it away, and waits until hostd lists it or not.
pub(crate) fn set(rig: &Rig, verb: &str, address: IpAddr) {
    let (len, nodad) = match address {
        IpAddr::V4(_) => (24, ""),
        IpAddr::V6(_) => (64, " nodad"),
    };
    let line = format!("ip address {verb} {address}/{len} dev leaf1{nodad}");
    let output = rig.lab.host("h1").run(line.split(' ')).unwrap();
    output.expect_ok();
    let wanted = verb == "add";
    let text = address.to_string();
    loop {
        let gids = rows(rig.lab.hostctl("h1", &["show", "gids"]).unwrap());
        if gids.iter().any(|gid| gid["address"] == text.as_str()) == wanted {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// `rping` of the guest with hostd's, each as client and as server, between this address of h1 and
/// the guest's.
fn ping(rig: &mut Rig, own: IpAddr) {
    const COUNT: usize = 3;
    let guest = rig.lab.host("h2").address(own.is_ipv6());
    let options = format!("-v -V -S 5000 -p {PORT}");
    let inside = format!("ulimit -l unlimited; exec rping {options}");
    let outside = format!("{} {options}", example("rping"));
    let server = rig.guest.start(&format!("{inside} -s -a {guest}")).unwrap();
    rig.await_listener();
    let words = format!("{outside} -c -C {COUNT} -I {own} -a {guest}");
    let output = rig.lab.host("h1").run(words.split(' ')).unwrap();
    let ours = output.expect_ok();
    assert_eq!(ours.matches("ping data: rdma-ping-").count(), COUNT);
    rig.guest.wait(server, LIMIT).unwrap();

    let words = format!("{outside} -s -a {own}");
    let mut process = rig.lab.host("h1").spawn(words.split(' ')).unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert!(first.starts_with("listening on port"), "{first}");
    let client = format!("{inside} -c -C {COUNT} -a {own}");
    let theirs = rig.guest.run(&client, LIMIT).unwrap().expect_ok();
    assert_eq!(theirs.matches("ping data: rdma-ping-").count(), COUNT);
    let mut ours = String::new();
    output.read_to_string(&mut ours).unwrap();
    assert!(process.wait().unwrap().success(), "{ours}");
}

/// HT-1, HT-10: the guest connects to further addresses of hostd's interface, and hostd from them
/// to the guest, by RDMA CM and by hand, over IPv4 and IPv6. No packet has the first address.
#[test]
fn the_guest_meets_other_addresses() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let first = [false, true].map(|v6| rig.lab.host("h1").address(v6));
        for (own, port) in first.map(beside).into_iter().zip(7020..) {
            set(rig, "add", own);
            ping(rig, own);
            let mut meeting = Meeting::new(port, own.is_ipv6(), 1024);
            meeting.own = Some(own);
            let mut talk = Talk::begin(rig, meeting);
            talk.hostd_sends(false, None, 10_000);
            talk.hostd_sends(true, Some(7), 5_000);
            talk.guest_sends("send", 10_000);
            talk.end(rig);
            set(rig, "del", own);
        }
        let file = capture.stop().unwrap();
        rig.assert_understood(&file);
        for (first, own) in first.iter().zip(first.map(beside)) {
            let field = if own.is_ipv6() {
                "ipv6.addr"
            } else {
                "ip.addr"
            };
            assert_eq!(packets(&file, &format!("{field} == {first}")), 0);
            assert!(packets(&file, &format!("{field} == {own}")) > 40);
        }
    });
}

/// Gives h1's link another MTU, and waits until hostd has it.
fn set_mtu(rig: &Rig, mtu: u32) {
    let line = format!("ip link set leaf1 mtu {mtu}");
    let output = rig.lab.host("h1").run(line.split(' ')).unwrap();
    output.expect_ok();
    while rows(rig.lab.hostctl("h1", &["show", "ports"]).unwrap())[0]["mtu"] != mtu {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// HT-10: the guest asks for packets of 4096 bytes, which hostd's link does not carry. The REJ has
/// reason 26 and, as tshark reads it, one byte of additional information, the code of 1024; the
/// guest's librdmacm tells its application that reason.
#[test]
fn the_guest_is_told_which_mtu_is_accepted() {
    rig::with(|rig| {
        let own = rig.lab.host("h1").address(false);
        set_mtu(rig, 1500);
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let words = format!("{} -s -p {PORT}", example("rping"));
        let mut process = rig.lab.host("h1").spawn(words.split(' ')).unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert!(first.starts_with("listening on port"), "{first}");
        let client = format!("ulimit -l unlimited; exec rping -c -v -C 1 -p {PORT} -a {own}");
        let theirs = rig.guest.run(&client, LIMIT).unwrap();
        let said = format!("{}{}", theirs.stdout, theirs.stderr);
        let _ = process.kill();
        process.wait().unwrap();
        set_mtu(rig, 9000);
        assert!(said.contains("REJECTED, error 26"), "{said}");
        let file = capture.stop().unwrap();
        assert_well_formed(&file);
        let rej = "infiniband.cm.rej.reason";
        let seen = |field| numbers(&file, rej, field);
        assert_eq!(seen("infiniband.cm.rej.reason"), [26].into());
        assert_eq!(seen("infiniband.cm.rej.rejinfolen"), [1].into());
        let info = dissect(&file, rej, &["infiniband.cm.rej.ari"]).unwrap();
        assert!(info[0].starts_with("30"), "{info:?}");
    });
}
