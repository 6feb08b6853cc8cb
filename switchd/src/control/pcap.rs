//! Traced packets as a pcapng file, which Wireshark shows with what each stage decided.
//!
//! ```text
//!   Section Header ─▶ Interface Description, one a port ─▶ Enhanced Packet, one a frame
//! ```
//!
//! A forwarded packet is there twice, as it arrived and as it left. The comment of the first says
//! what each stage decided, or why the packet was dropped. Reference: draft-ietf-opsawg-pcapng,
//! sections 4.1 to 4.3.

use crate::trace::{Direction, Names, SNAP, Shown, Snap, Trace};
use common::time::Span;
use std::io::{self, Write};

/// Block types.
mod block {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const ENHANCED_PACKET: u32 = 6;
}

/// Option codes; those from 2 on have another meaning in each type of block.
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const INTERFACE_NAME: u16 = 2;
    pub(super) const PACKET_FLAGS: u16 = 2;
    pub(super) const SECTION_APPLICATION: u16 = 4;
    pub(super) const TIME_RESOLUTION: u16 = 9;
}

/// Shows a reader the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// The time counts in units of 10 to the minus 9 seconds.
const NANOSECONDS: u8 = 9;
/// The two bits of direction in the flags of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Bytes of a block besides its body: type, and the length before and after it.
const AROUND: usize = 12;

/// Writes `traces`, frames in the order of their times. `epoch` is the time since 1970-01-01 at
/// which the switch's clock was zero.
///
/// # Errors
/// Those of `to`, and `InvalidInput` for a packet of a port that is not among `names`.
pub fn write(
    to: &mut impl Write,
    names: &Names<'_>,
    epoch: Span,
    traces: &[Trace],
) -> io::Result<()> {
    section(to)?;
    for port in names.ports {
        interface(to, &port.name)?;
    }
    let mut frames: Vec<(&Trace, &Snap)> = traces
        .iter()
        .flat_map(|trace| trace.snaps.iter().map(move |snap| (trace, snap)))
        .collect();
    frames.sort_by_key(|(_, snap)| snap.time);
    for (trace, snap) in frames {
        if snap.port.index() >= names.ports.len() {
            let text = format!(
                "a packet of {}, which does not exist",
                names.port(snap.port)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        packet(to, snap, epoch, &comment(trace, snap, names))?;
    }
    to.flush()
}

fn section(to: &mut impl Write) -> io::Result<()> {
    /// The length of the section is not known.
    const UNKNOWN: u64 = u64::MAX;
    let mut body = Body::default();
    body.u32(BYTE_ORDER);
    body.u16(1);
    body.u16(0);
    body.bytes(&UNKNOWN.to_le_bytes());
    let application = concat!("switchd ", env!("CARGO_PKG_VERSION"));
    body.option(option::SECTION_APPLICATION, application.as_bytes())?;
    body.end(to, block::SECTION)
}

fn interface(to: &mut impl Write, name: &str) -> io::Result<()> {
    let mut body = Body::default();
    body.u16(ETHERNET);
    body.u16(0);
    body.u32(u32::try_from(SNAP).unwrap_or(u32::MAX));
    body.option(option::INTERFACE_NAME, name.as_bytes())?;
    body.option(option::TIME_RESOLUTION, &[NANOSECONDS])?;
    body.end(to, block::INTERFACE)
}

fn packet(to: &mut impl Write, snap: &Snap, epoch: Span, comment: &str) -> io::Result<()> {
    let time = snap.time + epoch;
    let [high, low] = [time.nanos() >> 32, time.nanos() & 0xffff_ffff]
        .map(|half| u32::try_from(half).unwrap_or(u32::MAX));
    let flags = match snap.direction {
        Direction::In => INBOUND,
        Direction::Out => OUTBOUND,
    };
    let kept = snap.bytes();
    let mut body = Body::default();
    body.u32(snap.port.0.into());
    body.u32(high);
    body.u32(low);
    body.u32(u32::try_from(kept.len()).unwrap_or(u32::MAX));
    body.u32(snap.len.into());
    body.bytes(kept);
    body.pad();
    body.option(option::PACKET_FLAGS, &flags.to_le_bytes())?;
    body.option(option::COMMENT, comment.as_bytes())?;
    body.end(to, block::ENHANCED_PACKET)
}

/// All steps where the packet arrived; only the first line where it left.
fn comment(trace: &Trace, snap: &Snap, names: &Names<'_>) -> String {
    let lines = Shown::new(trace, names).lines();
    match snap.direction {
        Direction::In => lines.join("\n"),
        Direction::Out => lines.into_iter().next().unwrap_or_default(),
    }
}

/// The body of a block, in little-endian order.
#[derive(Debug, Default)]
struct Body(Vec<u8>);

impl Body {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Everything begins at a multiple of four bytes.
    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) -> io::Result<()> {
        let len = u16::try_from(value.len()).map_err(io::Error::other)?;
        self.u16(code);
        self.u16(len);
        self.bytes(value);
        self.pad();
        Ok(())
    }

    /// Ends the options and writes the block.
    fn end(mut self, to: &mut impl Write, kind: u32) -> io::Result<()> {
        self.u16(option::END);
        self.u16(0);
        let len = u32::try_from(self.0.len() + AROUND).map_err(io::Error::other)?;
        to.write_all(&kind.to_le_bytes())?;
        to.write_all(&len.to_le_bytes())?;
        to.write_all(&self.0)?;
        to.write_all(&len.to_le_bytes())
    }
}
