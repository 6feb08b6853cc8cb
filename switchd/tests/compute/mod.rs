//! In-network compute of the real daemon (SW-40, SW-42): members that are nothing but a UDP socket
//! and the page that describes the protocol.

use crate::support::{Rig, eventually, privileged};
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A member on either side. It sends `count` vectors of floats, loses every eighth message that it
/// sends first, checks every sum, and says what came of it. With `die` it stops in the middle.
const MEMBER: &str = "
import socket, struct, sys, time, zlib
side, count, die, slots_wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3] == 'die', 16
rank = dict(a=0, b=1)[side]
here, there = dict(a=('10.1.0.2', '10.1.0.1'), b=('2001:db8:2::2', '2001:db8:2::1'))[side]
s = socket.socket(socket.AF_INET if side == 'a' else socket.AF_INET6, socket.SOCK_DGRAM)
s.bind((here, 5000))
if side == 'b':
    s.setsockopt(17, 102, 1) # UDP_NO_CHECK6_RX: messages have a checksum of their own
s.settimeout(0.02)
epoch = 0
def say(kind, flags=0, work=0, element=0, slot=0, seq=0, contributions=0, payload=b''):
    head = struct.pack('!BBBBIIHHQQHH', 0x10 | kind, flags, work, element, 7, epoch, rank, slot, seq,
                       contributions, len(payload), 0)
    crc = zlib.crc32(head + bytes(12) + payload)
    s.sendto(head + struct.pack('!I', crc) + bytes(8) + payload, (there, 4795))
def hear():
    try:
        data = s.recv(2048)
    except socket.timeout:
        return None
    head = struct.unpack('!BBBBIIHHQQHH', data[:36])
    crc, = struct.unpack('!I', data[36:40])
    assert crc == zlib.crc32(data[:36] + bytes(12) + data[48:]), 'checksum'
    assert head[4] == 7 and head[6] == rank, head
    return head, data[48:]
join = struct.pack('!IHHHHBBBB', 1, rank, 2, slots_wanted, 64, 2, 0x40, 0, 0) + bytes(24)
end = time.monotonic() + 20
slots = 0
while not slots:
    assert time.monotonic() < end, 'nobody admits'
    say(4, payload=join)
    it = hear()
    if it and it[0][0] == 0x15:
        epoch = it[0][5]
        slots, payload, lease, generation = struct.unpack('!HHII', it[1][:12])
    elif it and it[0][0] == 0x16:
        print('refused', it[1][0])
        sys.exit()
have, first, sent = [False] * count, 0, [0] * count
def vector(rank, seq):
    return struct.pack('<16f', *[(rank + 1) * (seq + n) for n in range(16)])
def offer(seq):
    sent[seq] = time.monotonic()
    say(1, flags=16 if sent[seq] == 0 else 17, work=0x01, element=7, slot=seq % slots << 1 | seq // slots & 1,
        seq=seq, contributions=1 << rank, payload=vector(rank, seq))
made = 0
while first < count:
    if die and first >= count // 2:
        print('died')
        sys.exit()
    for seq in range(first, min(first + slots, count)):
        if not have[seq] and time.monotonic() - sent[seq] > 0.02:
            made += 1
            if made % 8 == 0 and sent[seq] == 0:
                sent[seq] = time.monotonic()
            else:
                offer(seq)
    it = hear()
    if it is None:
        continue
    head, data = it
    if head[0] == 0x13 and head[5] == epoch:
        reason, level, world = struct.unpack('!BBH', data[:4])
        print('failed', reason, world)
        sys.exit()
    if head[0] == 0x12 and head[5] == epoch and not head[1] & 2:
        seq = head[8]
        want = struct.pack('<16f', *[3 * (seq + n) for n in range(16)])
        assert data == want, (seq, data, want)
        assert head[9] == 3
        have[seq] = True
        while first < count and have[first]:
            first += 1
for n in range(100):
    say(9, payload=struct.pack('!BBHI', 0, 0, 0xffff, 1))
    it = hear()
    if it and it[0][0] in (0x1a, 0x13):
        break
print('done', count)
";

fn member(rig: &Rig, side: &str, count: u32, fate: &str) -> Child {
    let count = count.to_string();
    let mut command = rig.command(side, "python3", &["-c", MEMBER, side, &count, fate]);
    let command = command.stdout(Stdio::piped());
    command.spawn().expect("python3")
}

fn end(mut member: Child) -> String {
    let mut said = String::new();
    let mut out = member.stdout.take().expect("piped");
    out.read_to_string(&mut said).expect("text");
    assert!(member.wait().expect("our child").success(), "{said}");
    said.trim().to_owned()
}

fn jobs(rig: &Rig) -> Vec<serde_json::Value> {
    let rows = rig.ctl(&["inc", "jobs"]);
    rows.as_array().expect("rows").clone()
}

/// SW-40, SW-42: two members, one over IPv4 and one over IPv6, have the right sums of what each
/// sends though messages are lost; one that dies is named to the other within the lease and a
/// second; nothing is left.
#[test]
fn members_have_their_sums_or_the_name_of_the_dead() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("inc");
    rig.start(&["compute.enabled=true", "compute.remembered_seconds=2"]);
    let all = ["a", "b"].map(|side| member(&rig, side, 2_000, "live"));
    assert_eq!(all.map(end), ["done 2000", "done 2000"]);
    eventually("end of the job", || jobs(&rig).is_empty());

    let living = member(&rig, "a", 100_000, "live");
    let dying = member(&rig, "b", 2_000, "die");
    assert_eq!(end(dying), "died");
    let begin = std::time::Instant::now();
    assert_eq!(end(living), "failed 1 1");
    let limit = Duration::from_secs(6);
    assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());
    let rows = jobs(&rig);
    assert_eq!(rows[0]["state"], "member_lost");
    assert_eq!(
        (&rows[0]["open"], &rows[0]["memory_bytes"]),
        (&0.into(), &0.into())
    );
    eventually("end of the job", || jobs(&rig).is_empty());
}

/// SW-42: what operators see of a job, that they can end it but no job that there is not, which
/// events tell of it, and that the kernel still has all else that is the switch's.
#[test]
fn operators_see_jobs_and_end_them() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("ind");
    rig.start(&["compute.enabled=true"]);
    let all = ["a", "b"].map(|side| member(&rig, side, 100_000, "live"));
    eventually("job that runs", || {
        let rows = jobs(&rig);
        rows.first()
            .is_some_and(|row| row["state"] == "running" && row["members"] == 2)
    });
    assert_eq!(
        rig.ping("10.1.0.1", 2, 20),
        2,
        "the kernel answers for the switch"
    );
    let table = rig.ctl_output(&["inc", "jobs"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("running"));
    let refused = |rig: &Rig, job: &str, why: &str| {
        let output = rig.ctl_output(&["inc", "delete", job]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{said}");
    };
    refused(&rig, "8", "there is no job 8");
    let output = rig.ctl_output(&["inc", "create", "7", "--members", "2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let exists = "there is a job 7 already: running";
    assert!(!output.status.success() && said.contains(exists), "{said}");
    rig.ctl(&["inc", "delete", "7"]);
    // 8: deleted, and nobody is to blame.
    assert_eq!(all.map(end), ["failed 8 65535", "failed 8 65535"]);
    assert_eq!(jobs(&rig)[0]["state"], "deleted");
    refused(&rig, "7", "job 7 is over: deleted");
    let told = || -> Vec<String> {
        let events = rig.ctl(&["events"]);
        let events = events.as_array().expect("rows").iter();
        let of_jobs = events.filter(|event| event["kind"] == "compute");
        of_jobs
            .map(|event| event["text"].as_str().expect("text").to_owned())
            .collect()
    };
    let runs = "job 7 runs: 2 members, 16 slots, 0 switches above";
    eventually("events", || told().len() >= 2);
    assert_eq!(told(), [runs, "job 7 is over: deleted"]);
    rig.stop();
    rig.start(&[]);
    let output = rig.ctl_output(&["inc", "jobs"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("compute is off"),
        "{said}"
    );
}

/// SW-42: an operator reserves a job: it has the only place, so no other one begins; members that
/// come run it, one that wants another job than was reserved is refused; what nobody joins ends.
#[test]
fn operators_reserve_jobs() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("inr");
    let only = [
        "compute.enabled=true",
        "compute.remembered_seconds=2",
        "compute.jobs=1",
    ];
    rig.start(&only);
    let create = |rig: &Rig, words: &[&str]| {
        let words = [&["inc", "create"], words].concat();
        let output = rig.ctl_output(&words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let wrong = create(&rig, &["7", "--members", "65"]);
    assert!(
        !wrong.0 && wrong.1.contains("is not from 1 to 64"),
        "{wrong:?}"
    );
    // A worker has the jobs whose numbers leave the same rest: 7 and 19 meet, whether there are
    // one, two, three or four.
    let (is_done, said) = create(&rig, &["19", "--members", "2", "--lease", "2"]);
    assert!(is_done, "{said}");
    let full = create(&rig, &["7", "--members", "2"]);
    assert!(!full.0 && full.1.contains("too_many_jobs"), "{full:?}");
    let rows = jobs(&rig);
    assert_eq!(
        (&rows[0]["job"], &rows[0]["state"]),
        (&19.into(), &"reserved".into())
    );
    // 10: too_many_jobs. The place is job 19's.
    assert_eq!(end(member(&rig, "a", 1, "live")), "refused 10");
    eventually("end of what nobody joined", || jobs(&rig).is_empty());

    let (is_done, said) = create(&rig, &["7", "--members", "3"]);
    assert!(is_done, "{said}");
    // 15: wrong_terms. These are two.
    assert_eq!(end(member(&rig, "a", 1, "live")), "refused 15");
    rig.ctl(&["inc", "delete", "7"]);
    let limits = [
        "--members",
        "2",
        "--slots",
        "4",
        "--operations",
        "sum",
        "--types",
        "f32",
    ];
    let (is_done, said) = create(&rig, &[&["7"], &limits[..]].concat());
    assert!(is_done, "{said}");
    let all = ["a", "b"].map(|side| member(&rig, side, 2_000, "live"));
    assert_eq!(all.map(end), ["done 2000", "done 2000"]);
    let events = rig.ctl(&["events"]);
    let texts = events
        .as_array()
        .expect("rows")
        .iter()
        .map(|it| it["text"].as_str());
    let texts: Vec<_> = texts.flatten().collect();
    for told in [
        "job 19 is reserved: 2 members, 256 slots, for 2s",
        "job 19 is over: nobody joined what was reserved",
        "job 7 runs: 2 members, 4 slots, 0 switches above",
    ] {
        assert!(texts.contains(&told), "{texts:?}");
    }
}
