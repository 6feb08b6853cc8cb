//! All transport headers of one packet, read and written together.

use super::super::{Error, Result, be32, be64, need, put};
use super::{Aeth, AtomicEth, Bth, Deth, Extension, ICRC_LEN, Mpeh, Opcode, Operation, Reth, Sack};
use std::ops::Range;

/// BTH and whatever its opcode says that follows, up to the payload.
///
/// The opcode decides which of the options are there: [`Headers::parse`] fills exactly those, and
/// [`Headers::emit`] takes a missing one for all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Multipath extended header.
    pub mpeh: Option<Mpeh>,
    /// Extension of the MPEH.
    pub extension: Option<Extension>,
    /// Datagram header, in UD packets.
    pub deth: Option<Deth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic header.
    pub atomic: Option<AtomicEth>,
    /// Acknowledge header.
    pub aeth: Option<Aeth>,
    /// Selective acknowledgement, in ACKs with MPEH.
    pub sack: Option<Sack>,
    /// What was at the address of an atomic operation.
    pub atomic_original: Option<u64>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Key to invalidate.
    pub invalidate: Option<u32>,
}

/// Zero bytes that a CNP carries in place of payload.
const CNP_RESERVED: usize = 16;

impl Headers {
    /// A packet with a BTH and nothing else yet.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            mpeh: None,
            extension: None,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            sack: None,
            atomic_original: None,
            immediate: None,
            invalidate: None,
        }
    }

    /// A congestion notification packet for `dest_qp` (annex A17.9.3).
    pub const fn cnp(dest_qp: u32) -> Self {
        let mut bth = Bth::new(Opcode::Cnp, dest_qp, 0);
        bth.becn = true;
        bth.migrated = false;
        Self::new(bth)
    }

    /// Bytes from the BTH to the payload; the shortest, if an extension or marks make it longer.
    pub fn len_of(opcode: Opcode) -> usize {
        let operation = match opcode {
            Opcode::UdSendOnly => return Bth::LEN + Deth::LEN,
            Opcode::Cnp => return Bth::LEN + CNP_RESERVED,
            Opcode::Rc(operation) | Opcode::Multipath(operation) => operation,
        };
        let count = |there: bool, len: usize| if there { len } else { 0 };
        let multipath = opcode.is_multipath();
        Bth::LEN
            + count(multipath, Mpeh::LEN + Extension::LEN)
            + count(operation.has_reth(), Reth::LEN)
            + count(operation.has_atomic(), AtomicEth::LEN)
            + count(operation.has_aeth(), Aeth::LEN)
            + count(multipath && operation == Operation::Acknowledge, Sack::LEN)
            + count(operation == Operation::AtomicAcknowledge, 8)
            + count(operation.has_immediate(), 4)
            + count(operation.has_invalidate(), 4)
    }

    /// Bytes from the BTH, which begins `bytes`, to the payload, as far as they tell.
    #[inline]
    pub fn announced_len(opcode: Opcode, bytes: &[u8]) -> usize {
        let len = Self::len_of(opcode);
        if !opcode.is_multipath() {
            return len;
        }
        let extension = bytes.get(Bth::LEN + Mpeh::LEN..).unwrap_or_default();
        len + Extension::announced_len(extension) - Extension::LEN
    }

    /// Reads the headers of `bytes`, the payload of a UDP datagram, and returns with them where the
    /// payload lies in it. The ICRC is not looked at: see [`super::icrc::verify_sparse`].
    ///
    /// # Errors
    /// If a header is cut or invalid, or padding and ICRC do not fit, or there is payload where the
    /// opcode has none.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, Range<usize>)> {
        let bth = Bth::parse(bytes)?;
        let start = Self::announced_len(bth.opcode, bytes);
        let trailer = usize::from(bth.pad) + ICRC_LEN;
        need("roce", bytes, start + trailer)?;
        let mut headers = Self::new(bth);
        let skipped = headers.parse_extended(&bytes[..bytes.len() - trailer])?;
        let payload = headers.len() + skipped..bytes.len() - trailer;
        let has_payload = match bth.opcode {
            Opcode::UdSendOnly => true,
            Opcode::Cnp => false,
            Opcode::Rc(operation) | Opcode::Multipath(operation) => operation.has_payload(),
        };
        if !has_payload && !payload.is_empty() {
            let value = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            return Err(Error::Field {
                header: "roce",
                field: "payload length",
                value,
            });
        }
        Ok((headers, payload))
    }

    /// Reads what follows the BTH; the bytes of blocks of the extension that are not known here.
    fn parse_extended(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut skipped = 0;
        let mut at = Bth::LEN;
        let mut next = |len: usize| {
            at += len;
            at - len
        };
        if self.bth.opcode == Opcode::UdSendOnly {
            self.deth = Some(Deth::parse(&bytes[next(Deth::LEN)..])?);
        }
        let Some(operation) = self.bth.opcode.operation() else {
            return Ok(skipped);
        };
        let multipath = self.bth.opcode.is_multipath();
        if multipath {
            self.mpeh = Some(Mpeh::parse(&bytes[next(Mpeh::LEN)..])?);
            let (extension, len) = Extension::parse(&bytes[next(0)..])?;
            next(len);
            skipped = len - extension.len();
            self.extension = Some(extension);
        }
        if operation.has_reth() {
            self.reth = Some(Reth::parse(&bytes[next(Reth::LEN)..])?);
        }
        if operation.has_atomic() {
            self.atomic = Some(AtomicEth::parse(&bytes[next(AtomicEth::LEN)..])?);
        }
        if operation.has_aeth() {
            self.aeth = Some(Aeth::parse(&bytes[next(Aeth::LEN)..])?);
        }
        if multipath && operation == Operation::Acknowledge {
            // Marks may follow, and nothing after them.
            self.sack = Some(Sack::parse(&bytes[next(Sack::LEN)..])?);
        }
        if operation == Operation::AtomicAcknowledge {
            self.atomic_original = Some(be64(bytes, next(8)));
        }
        if operation.has_immediate() {
            self.immediate = Some(be32(bytes, next(4)));
        }
        if operation.has_invalidate() {
            self.invalidate = Some(be32(bytes, next(4)));
        }
        Ok(skipped)
    }

    /// Bytes from the BTH to the payload, as they are written.
    pub fn len(&self) -> usize {
        let longer = self.extension.map_or(0, |it| it.len() - Extension::LEN);
        let marks = self.sack.map_or(0, |sack| sack.len() - Sack::LEN);
        Self::len_of(self.bth.opcode) + longer + marks
    }

    /// Never: there is always a BTH.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers at the front of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`Self::len`].
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let bytes = &mut bytes[..self.len()];
        bytes.fill(0);
        self.bth.emit(bytes);
        let mut at = Bth::LEN;
        let mut next = |len: usize| {
            at += len;
            at - len..at
        };
        if let (Opcode::UdSendOnly, Some(deth)) = (self.bth.opcode, &self.deth) {
            deth.emit(&mut bytes[next(Deth::LEN)]);
        }
        let Some(operation) = self.bth.opcode.operation() else {
            return;
        };
        let multipath = self.bth.opcode.is_multipath();
        if multipath {
            self.mpeh
                .unwrap_or_default()
                .emit(&mut bytes[next(Mpeh::LEN)]);
            let extension = self.extension.unwrap_or_default();
            extension.emit(&mut bytes[next(extension.len())]);
        }
        if operation.has_reth() {
            let place = &mut bytes[next(Reth::LEN)];
            self.reth.iter().for_each(|reth| reth.emit(place));
        }
        if operation.has_atomic() {
            let place = &mut bytes[next(AtomicEth::LEN)];
            self.atomic.iter().for_each(|atomic| atomic.emit(place));
        }
        if operation.has_aeth() {
            let place = &mut bytes[next(Aeth::LEN)];
            self.aeth.iter().for_each(|aeth| aeth.emit(place));
        }
        if multipath && operation == Operation::Acknowledge {
            let sack = self.sack.unwrap_or_default();
            sack.emit(&mut bytes[next(sack.len())]);
        }
        if operation == Operation::AtomicAcknowledge {
            let original = self.atomic_original.unwrap_or(0);
            put(bytes, next(8).start, original.to_be_bytes());
        }
        if operation.has_immediate() {
            put(
                bytes,
                next(4).start,
                self.immediate.unwrap_or(0).to_be_bytes(),
            );
        }
        if operation.has_invalidate() {
            put(
                bytes,
                next(4).start,
                self.invalidate.unwrap_or(0).to_be_bytes(),
            );
        }
    }
}
