//! MAC control: PAUSE (IEEE 802.3 annex 31B) and priority-based flow control (802.1Qbb, 802.3
//! annex 31D).

use super::ethernet::{self, Mac, ethertype};
use super::{Error, Result, be16, need, put};

/// Where MAC control frames go; no bridge forwards it.
pub const DESTINATION: Mac = Mac([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
/// Bytes of a frame, without its check sequence.
pub const FRAME_LEN: usize = ethernet::MIN_LEN;
/// Priorities of a port.
pub const PRIORITIES: usize = 8;
/// Bits that take one quantum of pause time.
pub const QUANTUM_BITS: u64 = 512;

const OPCODE_PAUSE: u16 = 0x0001;
const OPCODE_PFC: u16 = 0x0101;
const HEADER: &str = "mac control";

/// What a MAC control frame asks for. Times are in quanta of 512 bit times of the port; zero
/// resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// All traffic of the port waits (802.3x).
    Pause(u16),
    /// The named priorities wait; `None` leaves a priority as it is.
    Pfc([Option<u16>; PRIORITIES]),
}

impl Control {
    /// Reads the payload of a MAC control frame.
    ///
    /// # Errors
    /// If it is cut, or the opcode or the enable vector is not one that the standards define.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        need(HEADER, payload, 4)?;
        match be16(payload, 0) {
            OPCODE_PAUSE => Ok(Self::Pause(be16(payload, 2))),
            OPCODE_PFC => {
                need(HEADER, payload, 4 + 2 * PRIORITIES)?;
                let enabled = be16(payload, 2);
                if enabled > 0xff {
                    let value = u32::from(enabled);
                    return Err(Error::Field {
                        header: HEADER,
                        field: "class enable vector",
                        value,
                    });
                }
                let time = |n: usize| (enabled & 1 << n != 0).then(|| be16(payload, 4 + 2 * n));
                Ok(Self::Pfc(std::array::from_fn(time)))
            }
            other => Err(Error::Field {
                header: HEADER,
                field: "opcode",
                value: u32::from(other),
            }),
        }
    }

    /// Writes a whole frame, padded to the least length.
    pub fn emit(&self, src: Mac) -> [u8; FRAME_LEN] {
        let mut frame = [0; FRAME_LEN];
        ethernet::emit(&mut frame, DESTINATION, src, ethertype::MAC_CONTROL);
        let payload = &mut frame[ethernet::HEADER_LEN..];
        match self {
            Self::Pause(time) => {
                put(payload, 0, OPCODE_PAUSE.to_be_bytes());
                put(payload, 2, time.to_be_bytes());
            }
            Self::Pfc(times) => {
                put(payload, 0, OPCODE_PFC.to_be_bytes());
                for (n, time) in times.iter().enumerate() {
                    if let Some(time) = time {
                        payload[3] |= 1 << n;
                        put(payload, 4 + 2 * n, time.to_be_bytes());
                    }
                }
            }
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// SW-30, SW-31: the formats, to the byte.
    #[test]
    fn frames_have_the_bytes_of_the_standards() {
        let src = Mac([2, 0, 0, 0, 0, 1]);
        let pause = Control::Pause(0xffff).emit(src);
        assert_eq!(
            pause[..18],
            [
                1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 8, 0, 1, 0xff, 0xff
            ]
        );
        assert!(pause[18..].iter().all(|byte| *byte == 0));

        let mut times = [None; 8];
        (times[3], times[4]) = (Some(0x1234), Some(0));
        let pfc = Control::Pfc(times).emit(src);
        assert_eq!(pfc[12..18], [0x88, 8, 1, 1, 0, 0b0001_1000]);
        assert_eq!(pfc[24..28], [0x12, 0x34, 0, 0]);
        assert_eq!(Control::parse(&pfc[14..]), Ok(Control::Pfc(times)));
    }

    #[test]
    fn what_the_standards_do_not_define_is_refused() {
        assert!(Control::parse(&[0, 2, 0, 0]).is_err(), "opcode");
        assert!(Control::parse(&[1, 1, 0, 1]).is_err(), "cut");
        let mut vector = [0; 46];
        vector[..4].copy_from_slice(&[1, 1, 1, 0]);
        assert!(Control::parse(&vector).is_err(), "vector");
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(times: [Option<u16>; 8], time: u16, any: Vec<u8>) {
            for control in [Control::Pfc(times), Control::Pause(time)] {
                prop_assert_eq!(Control::parse(&control.emit(Mac::default())[14..]), Ok(control));
            }
            let _ = Control::parse(&any);
        }
    }
}
