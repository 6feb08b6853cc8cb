//! The verbs program of the guest, and what is told to it.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::OnceLock;

use guest::Script;
use hostd_client::{ByHand, QueuePair, RemoteSlice};

use crate::links::Addresses;
use crate::rig::{LIMIT, Rig};

/// How two ends meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meeting {
    /// Where the program listens for what it is told, by IPv4.
    pub(crate) port: u16,
    /// Whether the GIDs are of IPv6.
    pub(crate) v6: bool,
    pub(crate) mtu: u16,
    /// Bytes of the program's buffer, in MiB.
    pub(crate) buffer_mib: usize,
    /// The own address of hostd's end; the first one of h1 if `None`.
    pub(crate) own: Option<IpAddr>,
    /// Where both are; where the laboratory has put them if `None`.
    pub(crate) at: Option<Addresses>,
}

impl Meeting {
    pub(crate) const fn new(port: u16, v6: bool, mtu: u16) -> Self {
        let buffer_mib = 20;
        Self {
            port,
            v6,
            mtu,
            buffer_mib,
            own: None,
            at: None,
        }
    }
}

/// The program, at the other end of a queue pair of hostd.
pub(crate) struct Peer {
    told: BufReader<TcpStream>,
    process: Script,
    /// Its buffer.
    pub(crate) remote: RemoteSlice,
}

impl Peer {
    /// Starts the program, and connects a queue pair with its own.
    pub(crate) fn meet(rig: &mut Rig, pair: &mut QueuePair, meeting: Meeting) -> Self {
        let Meeting {
            port,
            v6,
            mtu,
            buffer_mib,
            own,
            at,
        } = meeting;
        let at = at.unwrap_or_else(|| Addresses::far(rig));
        let [h1, h2] = [at.hostd, at.guest].map(|of| of[usize::from(v6)]);
        let h1 = own.unwrap_or(h1);
        let gid = rig.gid(h2);
        let program = program();
        let script = format!("ulimit -l unlimited; exec {program} {port} {gid} {mtu} {buffer_mib}");
        let process = rig.guest.start(&script).unwrap();
        rig.await_port(port.into());
        let server = SocketAddr::new(at.guest[0], port);
        let host = rig.lab.host("h1");
        let mut stream = host.inside(|| TcpStream::connect(server)).unwrap().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let own = match h1 {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        // Near the end, so that the numbers wrap.
        let psn = 0xff_ffc0;
        let line = format!("{:032x} {} {psn}\n", u128::from(own), pair.number());
        stream.write_all(line.as_bytes()).unwrap();
        let mut told = BufReader::new(stream);
        let mut answer = String::new();
        told.read_line(&mut answer).unwrap();
        let words = answer.split_whitespace().map(|word| word.parse().unwrap());
        let words: Vec<u64> = words.collect();
        let [qpn, peer_psn, address, rkey] = words[..] else {
            panic!("the guest tells {answer:?}");
        };
        let [peer_number, peer_psn, rkey] = [qpn, peer_psn, rkey].map(|it| it.try_into().unwrap());
        pair.connect_by_hand(&ByHand {
            peer_number,
            psn,
            peer_psn,
            mtu,
            // 1.1 s, as in the program: the guest is slow, and so may be its machine.
            timeout: 18,
            max_dest_rd_atomic: 4,
            max_rd_atomic: 4,
            ..ByHand::new(h1, h2)
        })
        .unwrap();
        Self {
            told,
            process,
            remote: RemoteSlice { address, rkey },
        }
    }

    /// Tells it to do something, whose answer will come.
    pub(crate) fn tell(&mut self, line: &str) {
        let stream = self.told.get_mut();
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Its next answer.
    pub(crate) fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.told.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Has it do something, which must succeed.
    #[track_caller]
    pub(crate) fn must(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "{line}");
    }

    /// The program ends, and has not complained.
    pub(crate) fn end(self, rig: &mut Rig) {
        drop(self.told);
        let output = rig.guest.wait(self.process, LIMIT).unwrap();
        assert!(output.ok() && output.stderr.is_empty(), "{output:?}");
    }
}

/// The program, built.
fn program() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/verbs_peer.c");
        let own = std::env::current_exe().unwrap();
        let program = own.with_file_name("verbs_peer").display().to_string();
        let output = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-o"])
            .args([&program, source, "-libverbs"])
            .output()
            .unwrap();
        assert!(output.status.success(), "make setup? {output:?}");
        program
    })
}

/// Bytes of a message with this seed: a block of 64 KiB differs from those before it.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    // Each row of 256 bytes is a part of the same sequence.
    let sequence: Vec<u8> = (0..512_usize).map(|n| low(n * 7)).collect();
    let mut bytes = Vec::with_capacity(len + 256);
    for row in 0..len.div_ceil(256) {
        let first = row * 13 + (row >> 8) * 29 + (row >> 16) * 37 + seed as usize * 131;
        // 7 × 183 = 1 modulo 256.
        let start = usize::from(low(first * 183));
        bytes.extend_from_slice(&sequence[start..start + 256]);
    }
    bytes.truncate(len);
    bytes
}

fn low(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

/// Where the bytes of a message lie that has this many pieces, the last one in front and gaps
/// between them: offset and length of each.
pub(crate) fn layout(pieces: usize, len: usize) -> Vec<(usize, usize)> {
    const GAP: usize = 24;
    let pieces = pieces.min(len).max(1);
    let each = len / pieces;
    let last = len - each * (pieces - 1);
    (0..pieces)
        .map(|index| {
            let len = if index == pieces - 1 { last } else { each };
            ((pieces - 1 - index) * (last + GAP), len)
        })
        .collect()
}

#[test]
fn patterns_are_those_of_the_program() {
    let byte = |n: usize, seed: usize| {
        let sum = n * 7 + (n >> 8) * 13 + (n >> 16) * 29 + (n >> 24) * 37 + seed * 131;
        low(sum)
    };
    let len = (1 << 24) + 70_000;
    let found = pattern(len, 3);
    assert!((0..len).all(|n| found[n] == byte(n, 3)));
    assert_eq!(layout(3, 11), [(2 * 29, 3), (29, 3), (0, 5)]);
}
