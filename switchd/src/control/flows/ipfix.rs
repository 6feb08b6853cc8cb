//! IPFIX messages (RFC 7011): records of flows for a collector.
//!
//! ```text
//!   message   version 10 │ length │ export time │ sequence │ observation domain │ sets
//!   template set   2 │ length │ 256 or 257 │ fields: number, length, enterprise
//!   data set     256 or 257 │ length │ records
//! ```
//!
//! A field is one of IANA's registry, or of the configured enterprise. Values that are not known
//! are zero.

use super::record::{Learned, Record};
use common::time::Time;
use std::net::IpAddr;

/// Bytes of a message at most: it fits in a packet of any link.
pub(super) const MESSAGE_MAX: usize = 1400;

const VERSION: u16 = 10;
const HEADER_LEN: usize = 16;
const TEMPLATE_SET: u16 = 2;
/// The bit of a field's number that says that it is an enterprise's.
const ENTERPRISE: u16 = 1 << 15;
/// Templates, by version of IP: IPv4, IPv6.
const TEMPLATES: [u16; 2] = [256, 257];
const UDP: u8 = 17;
const ROCE: u16 = common::wire::udp::ROCE_PORT;

/// Number and length of a field.
type Field = (u16, u16);

/// Fields of IANA's registry that are the addresses, by version of IP.
const ADDRESSES: [[Field; 2]; 2] = [[(8, 4), (12, 4)], [(27, 16), (28, 16)]];

/// The others: source and destination port, protocol, ingress interface, octets, packets, start and
/// end in milliseconds, reason of the end, traffic class.
const FIELDS: [Field; 10] = [
    (7, 2),
    (11, 2),
    (4, 1),
    (10, 4),
    (1, 8),
    (2, 8),
    (152, 8),
    (153, 8),
    (136, 1),
    (5, 1),
];

/// Those of the enterprise: source and destination queue pair, NAKs, time of the last one in
/// milliseconds, round trip in nanoseconds, bits a second, refusals, congestion notifications, how
/// it was learned.
const OWN_FIELDS: [Field; 9] = [
    (1, 4),
    (2, 4),
    (3, 8),
    (4, 8),
    (5, 8),
    (6, 8),
    (7, 8),
    (8, 8),
    (9, 1),
];

/// Clocks and names of this machine, for records.
#[derive(Clone, Copy)]
pub(super) struct Here<'a> {
    /// The switch's clock,
    pub(super) now: Time,
    /// and milliseconds since the Epoch at the same time.
    pub(super) millis: u64,
    /// The kernel's number of a port.
    pub(super) ifindex: &'a dyn Fn(crate::id::PortId) -> u32,
}

impl Here<'_> {
    fn millis(&self, time: Time) -> u64 {
        let ago = self.now.since(time).nanos() / 1_000_000;
        self.millis.saturating_sub(ago)
    }
}

/// Writes messages of one observation domain.
#[derive(Debug)]
pub(super) struct Writer {
    enterprise: u32,
    domain: u32,
    /// Records that were written before.
    sequence: u32,
}

fn put(bytes: &mut Vec<u8>, number: u64, len: u16) {
    let all = number.to_be_bytes();
    bytes.extend_from_slice(&all[all.len() - usize::from(len)..]);
}

impl Writer {
    pub(super) fn new(enterprise: u32, domain: u32) -> Self {
        Self {
            enterprise,
            domain,
            sequence: 0,
        }
    }

    /// The header of a message before which so many records are sent (RFC 7011 §3.1).
    fn begin(&self, millis: u64, sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MESSAGE_MAX);
        put(&mut bytes, VERSION.into(), 2);
        put(&mut bytes, 0, 2);
        put(&mut bytes, millis / 1000, 4);
        put(&mut bytes, sequence.into(), 4);
        put(&mut bytes, self.domain.into(), 4);
        bytes
    }

    /// Writes a length in two bytes behind two others, as messages and sets have it.
    fn close(bytes: &mut [u8], from: usize) {
        let len = u16::try_from(bytes.len() - from).expect("shorter than a packet");
        bytes[from + 2..from + 4].copy_from_slice(&len.to_be_bytes());
    }

    /// A message that tells what records have. It is sent before `waiting` of the records that were
    /// written.
    pub(super) fn templates(&self, millis: u64, waiting: u32) -> Vec<u8> {
        let mut bytes = self.begin(millis, self.sequence.wrapping_sub(waiting));
        put(&mut bytes, TEMPLATE_SET.into(), 2);
        put(&mut bytes, 0, 2);
        let count = ADDRESSES[0].len() + FIELDS.len() + OWN_FIELDS.len();
        for (template, addresses) in TEMPLATES.into_iter().zip(ADDRESSES) {
            put(&mut bytes, template.into(), 2);
            put(&mut bytes, count as u64, 2);
            for (number, len) in addresses.into_iter().chain(FIELDS) {
                put(&mut bytes, number.into(), 2);
                put(&mut bytes, len.into(), 2);
            }
            for (number, len) in OWN_FIELDS {
                put(&mut bytes, (ENTERPRISE | number).into(), 2);
                put(&mut bytes, len.into(), 2);
                put(&mut bytes, self.enterprise.into(), 4);
            }
        }
        Self::close(&mut bytes, HEADER_LEN);
        Self::close(&mut bytes, 0);
        bytes
    }

    /// Messages with these records, and how many each has.
    pub(super) fn records(&mut self, records: &[Record], here: Here<'_>) -> Vec<(Vec<u8>, u32)> {
        let mut messages = Vec::new();
        for (template, is_v6) in TEMPLATES.into_iter().zip([false, true]) {
            let its = records.iter().filter(|record| record.key.is_v6() == is_v6);
            let its: Vec<&Record> = its.collect();
            let address = if is_v6 { 16 } else { 4 };
            let most = (MESSAGE_MAX - HEADER_LEN - 4) / record_len(address);
            for some in its.chunks(most) {
                let mut bytes = self.begin(here.millis, self.sequence);
                put(&mut bytes, template.into(), 2);
                put(&mut bytes, 0, 2);
                some.iter().for_each(|it| write(&mut bytes, it, here));
                Self::close(&mut bytes, HEADER_LEN);
                Self::close(&mut bytes, 0);
                let count = u32::try_from(some.len()).expect("few fit in a message");
                self.sequence = self.sequence.wrapping_add(count);
                messages.push((bytes, count));
            }
        }
        messages
    }
}

/// Bytes of a record with addresses of so many.
fn record_len(address: usize) -> usize {
    let fields = FIELDS.iter().chain(&OWN_FIELDS);
    2 * address + fields.map(|(_, len)| usize::from(*len)).sum::<usize>()
}

fn write(bytes: &mut Vec<u8>, record: &Record, here: Here<'_>) {
    for address in [record.key.source(), record.key.destination()] {
        match address {
            IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
        }
    }
    let Record { counts, .. } = record;
    let values = [
        record.source_port.into(),
        ROCE.into(),
        UDP.into(),
        (here.ifindex)(record.ingress).into(),
        counts.bytes,
        counts.packets,
        here.millis(record.first),
        here.millis(record.last),
        record.reason as u64,
        record.traffic_class.into(),
    ];
    let (source_qp, learned) = match record.other {
        None => (0, 0),
        Some((qp, Learned::Setup)) => (qp, 1),
        Some((qp, Learned::Data)) => (qp, 2),
    };
    let own = [
        source_qp.into(),
        record.key.qp().into(),
        counts.naks,
        record.nak_at.map_or(0, |time| here.millis(time)),
        record.rtt.map_or(0, |rtt| rtt.nanos()),
        record.rate.map_or(0, |rate| rate.bps()),
        counts.refusals,
        counts.cnps,
        learned,
    ];
    let all = values.into_iter().chain(own);
    for (value, (_, len)) in all.zip(FIELDS.iter().chain(&OWN_FIELDS)) {
        put(bytes, value, *len);
    }
}
