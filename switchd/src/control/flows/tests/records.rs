//! SW-50: records as collectors get them.

use super::super::ipfix::{Here, MESSAGE_MAX, Writer};
use super::*;
use std::net::UdpSocket;

/// A record of a direction of IPv4 or IPv6.
fn record(v6: bool) -> Record {
    Record {
        key: Key::new(host(1, v6), host(2, v6), 0x12_3456).unwrap(),
        other: Some((7, Learned::Setup)),
        counts: crate::flows::Counts {
            packets: 3,
            bytes: 300,
            naks: 1,
            refusals: 0,
            cnps: 2,
        },
        first: Time::from_nanos(1_000_000_000),
        last: Time::from_nanos(2_000_000_000),
        nak_at: Some(Time::from_nanos(1_500_000_000)),
        ingress: PortId(4),
        source_port: 0xc001,
        traffic_class: 0x69,
        rtt: Some(Span::from_nanos(8123)),
        rate: None,
        reason: EndReason::Idle,
    }
}

fn here(ifindex: &dyn Fn(PortId) -> u32) -> Here<'_> {
    Here {
        now: Time::from_nanos(3_000_000_000),
        millis: 1_700_000_003_000,
        ifindex,
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len]
        .iter()
        .fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// SW-50: messages are as RFC 7011 has them: lengths fit, records are as long as their template
/// says, sequence numbers count records.
#[test]
fn messages_are_as_the_standard_has_them() {
    let mut writer = Writer::new(32_473, 9);
    let templates = writer.templates(1_700_000_003_000, 0);
    let header = |bytes: &[u8]| {
        let all = [(0, 2), (2, 2), (4, 4), (8, 4), (12, 4), (16, 2), (18, 2)];
        all.map(|(at, len)| number(bytes, at, len))
    };
    let len = templates.len() as u64;
    let expected = [10, len, 1_700_000_003, 0, 9, 2, len - 16];
    assert_eq!(header(&templates), expected);
    let mut lengths = Vec::new();
    let mut at = 20;
    while at < templates.len() {
        let (template, count) = (number(&templates, at, 2), number(&templates, at + 2, 2));
        at += 4;
        let mut len = 0;
        for _ in 0..count {
            len += number(&templates, at + 2, 2);
            let is_own = number(&templates, at, 2) & 0x8000 != 0;
            if is_own {
                assert_eq!(number(&templates, at + 4, 4), 32_473);
            }
            at += if is_own { 8 } else { 4 };
        }
        lengths.push((template, len));
    }
    let ifindex = |port: PortId| u32::from(port.0) + 100;
    let many: Vec<Record> = (0..50).map(|n| record(n % 2 == 1)).collect();
    let messages = writer.records(&many, here(&ifindex));
    let mut sequence = 0;
    for (bytes, count) in &messages {
        assert!(bytes.len() <= MESSAGE_MAX);
        let [version, len, _, number, _, set, set_len] = header(bytes);
        assert_eq!((version, len), (10, bytes.len() as u64));
        assert_eq!(number, u64::from(sequence));
        let of = lengths
            .iter()
            .find(|(template, _)| *template == set)
            .unwrap();
        assert_eq!(set_len, 4 + u64::from(*count) * of.1);
        sequence += count;
    }
    assert_eq!(sequence, 50);
    let (first, _) = &messages[0];
    let fields = [
        (4, 0x0a00_0001),
        (4, 0x0a00_0002),
        (2, 0xc001),
        (2, 4791),
        (1, 17),
        (4, 104),
        (8, 300),
        (8, 3),
        (8, 1_700_000_001_000),
        (8, 1_700_000_002_000),
        (1, 1),
        (1, 0x69),
        (4, 7),
        (4, 0x12_3456),
        (8, 1),
        (8, 1_700_000_001_500),
        (8, 8123),
        (8, 0),
        (8, 0),
        (8, 2),
        (1, 1),
    ];
    let mut at = 20;
    for (len, value) in fields {
        assert_eq!(number(first, at, len), value, "at {at}");
        at += len;
    }
}

/// SW-50: a collector gets templates first, and again; one that is down is counted, and what waits
/// for it is bounded.
#[test]
fn collectors_come_and_go() {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut exporter = Exporter::new(address, &settings());
    let ifindex = |_| 1;
    let mut now = Time::from_nanos(1);
    exporter.take(&[record(false)], here(&ifindex));
    exporter.send(now, 0);
    let mut buffer = [0; 2048];
    let mut set = || {
        let len = listener.recv(&mut buffer).unwrap();
        number(&buffer[..len], 16, 2)
    };
    assert_eq!([set(), set()], [2, 256]);
    now += Span::from_secs(30);
    exporter.send(now, 0);
    assert_eq!(set(), 2);
    assert_eq!(
        (exporter.counted.records, exporter.counted.messages),
        (1, 3)
    );
    assert_eq!(exporter.trouble(), None);
    drop(listener);
    // The first message to nobody is sent; that nobody had it is told with the next one.
    for _ in 0..4 {
        exporter.take(&[record(true)], here(&ifindex));
        exporter.send(now, 0);
        now += Span::from_secs(2);
    }
    assert!(exporter.counted.failures >= 1, "{:?}", exporter.counted);
    let trouble = exporter.trouble().expect("it is told").to_owned();
    let wanted = format!("collector {address} of flows: Connection refused");
    assert!(trouble.starts_with(&wanted), "{trouble}");
    for _ in 0..5000 {
        exporter.take(&[record(false)], here(&ifindex));
    }
    assert_eq!(exporter.waiting(), 4096);
    assert!(exporter.counted.dropped >= 5000 - 4096);
    let listener = UdpSocket::bind(address).unwrap();
    for _ in 0..4 {
        now += Span::from_secs(2);
        exporter.send(now, 0);
    }
    let len = listener.recv(&mut buffer).unwrap();
    assert_eq!(
        number(&buffer[..len], 16, 2),
        2,
        "templates come first again"
    );
    assert!(exporter.waiting() <= 4096 - 32);
    assert_eq!(exporter.trouble(), None);
}

/// Where a record of IPv4 says how many packets, when its last one passed, and why it is told; and
/// how long it is.
const PACKETS: usize = 25;
const LAST: usize = 41;
const REASON: usize = 49;
const RECORD: usize = 108;

/// SW-50: of ten thousand flows, which is what the table has room for, each direction is told
/// within a second of when it is due, whether they end one after another or together; all packets
/// are told, and no sequence number says that a record is missing, that of a template neither.
#[test]
fn all_are_told_when_they_are_due() {
    const FLOWS: u32 = 10_000;
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let collector = listener.local_addr().unwrap();
    let settings = Flows {
        collector: collector.to_string(),
        template_seconds: 1,
        ..settings()
    };
    let (a, b) = (host(1, false), host(2, false));
    for spread in [0, 3000] {
        let all = observers(2, FLOWS as usize, Span::from_secs(10), 3);
        let (mut observers, ends): (Vec<_>, Vec<Ends>) = all.into_iter().unzip();
        let exporter = Exporter::new(collector, &settings);
        let mut analysis = Analysis::new(Book::new(&settings, ends), Some(exporter));
        let begin = Time::ZERO + Span::from_secs(100);
        let mut now = begin;
        let (mut shown, mut told, mut packets, mut latest) = (0, 0, 0, 0);
        let mut buffer = [0; 2048];
        while told < 2 * u64::from(FLOWS) {
            while shown < FLOWS
                && now >= begin + Span::from_millis(spread * u64::from(shown) / u64::from(FLOWS))
            {
                let asked = frame(a, b, &request(FLOWS + shown, shown * 16), &[0; 64]);
                let answer = frame(b, a, &acknowledge(shown + 2, shown * 16, POSITIVE), &[]);
                show(&mut observers[0], &asked, 1, now);
                show(&mut observers[1], &answer, 2, now);
                shown += 1;
            }
            analysis.read(now);
            let millis = now.nanos() / 1_000_000;
            let ifindex = |_| 1;
            analysis.export(Here {
                now,
                millis,
                ifindex: &ifindex,
            });
            while let Ok(len) = listener.recv(&mut buffer) {
                assert_eq!(number(&buffer, 8, 4), told, "records that came before");
                let is_template = number(&buffer, 16, 2) == 2;
                let end = if is_template { 0 } else { len };
                for at in (20..end).step_by(RECORD) {
                    let late = millis - number(&buffer, at + LAST, 8) - 4000;
                    assert!(late <= 1000, "{late} ms");
                    latest = latest.max(late);
                    packets += number(&buffer, at + PACKETS, 8);
                    told += 1;
                }
            }
            now = analysis.next(now);
            assert!(now < begin + Span::from_secs(20), "{told} of {shown}");
        }
        assert_eq!((told, packets), (20_000, 20_000));
        println!("last packets within {spread} ms: the latest record {latest} ms late");
    }
}

/// SW-50: of a flow that goes on each direction is told each active time, within a second of it,
/// and each time what passed since the last one.
#[test]
fn a_flow_that_goes_on_is_told_each_active_time() {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let collector = listener.local_addr().unwrap();
    let (a, b) = (host(1, false), host(2, false));
    let all = observers(2, 16, Span::from_secs(10), 3);
    let (mut observers, ends): (Vec<_>, Vec<Ends>) = all.into_iter().unzip();
    let settings = Flows {
        collector: collector.to_string(),
        ..settings()
    };
    let exporter = Exporter::new(collector, &settings);
    let mut analysis = Analysis::new(Book::new(&settings, ends), Some(exporter));
    let begin = Time::ZERO + Span::from_secs(100);
    let mut now = begin;
    let (mut psn, mut told, mut packets) = (0, Vec::new(), 0);
    let mut buffer = [0; 2048];
    while now < begin + Span::from_secs(35) {
        psn += 1;
        let asked = frame(a, b, &request(22, psn), &[0; 64]);
        show(&mut observers[0], &asked, 1, now);
        let answer = frame(b, a, &acknowledge(11, psn, POSITIVE), &[]);
        show(&mut observers[1], &answer, 2, now);
        analysis.read(now);
        let ifindex = |_| 1;
        analysis.export(Here {
            now,
            millis: now.nanos() / 1_000_000,
            ifindex: &ifindex,
        });
        while let Ok(len) = listener.recv(&mut buffer) {
            let is_template = number(&buffer, 16, 2) == 2;
            let end = if is_template { 0 } else { len };
            for at in (20..end).step_by(RECORD) {
                assert_eq!(number(&buffer, at + REASON, 1), 2, "active");
                let since = now.since(begin).nanos() / 1_000_000;
                told.push((number(&buffer, at, 4), since));
                packets += number(&buffer, at + PACKETS, 8);
            }
        }
        now = analysis.next(now);
    }
    for source in [0x0a00_0001, 0x0a00_0002] {
        let of_it = told.iter().filter(|it| it.0 == source).map(|it| it.1);
        let times: Vec<u64> = of_it.collect();
        println!("{source:08x}: after {times:?} ms");
        assert_eq!(times.len(), 3, "{times:?}");
        for (time, due) in times.iter().zip([10_000, 20_000, 30_000]) {
            assert!(time.abs_diff(due) <= 1000, "{times:?}");
        }
    }
    // About 300 exchanges in 30 s.
    assert!((560..=2 * u64::from(psn)).contains(&packets), "{packets}");
}
