//! Who wrote a message, and to whom: a tag that only those who have the key of the job can make.
//!
//! The tag is the first eight bytes of AEGISMAC-128L (RFC 10032) with a nonce of zero, over header
//! and payload with checksum and tag taken as zero, and then over the addresses that the packet
//! comes from and goes to: a message that was recorded says nothing to anybody else, and nothing
//! from another address. As a MAC AEGIS may have the same nonce for all messages. The key of a job
//! is derived from the secret of the fabric and the number of the job, so that a switch which was
//! just started has the keys of all jobs.

use super::layout::{HEADER_LEN, covered, field};
use crate::wire::array;
use aegis::aegis128l::Aegis128LMac;
use std::net::IpAddr;

const CONTEXT: &str = "switchd in-network compute, key of a job, version 1";

/// Bytes of the tag that the algorithm makes.
const WHOLE: usize = 16;

/// The key of a job.
#[derive(Clone)]
pub struct Key {
    /// The algorithm after it took the key, which takes as long as 300 bytes of a message.
    keyed: Aegis128LMac<WHOLE>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl Key {
    /// The key of `job` in a fabric with this secret.
    pub fn of_job(secret: &[u8; 32], job: u32) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(secret);
        hasher.update(&job.to_be_bytes());
        let key: [u8; 16] = array(hasher.finalize().as_bytes(), 0);
        Self {
            keyed: Aegis128LMac::new(&key),
        }
    }

    /// What makes the tags of messages from `src` to `dst`: the addresses of their packets.
    pub const fn between(&self, src: IpAddr, dst: IpAddr) -> Seal<'_> {
        Seal {
            key: self,
            src,
            dst,
        }
    }
}

/// Makes the tags of the messages of a job from one address to another.
#[derive(Clone, Copy, Debug)]
pub struct Seal<'a> {
    key: &'a Key,
    src: IpAddr,
    dst: IpAddr,
}

impl Seal<'_> {
    /// The tag of a message, which must have a header.
    pub(super) fn tag(&self, message: &[u8]) -> [u8; 8] {
        let mut mac = self.key.keyed.clone();
        mac.update(&covered(message));
        mac.update(&message[HEADER_LEN..]);
        mac.update(&sixteen(self.src));
        mac.update(&sixteen(self.dst));
        array(&mac.finalize(), 0)
    }

    /// Whether the tag of a message, which was read before, was made so. It takes as long whatever
    /// the tag is.
    pub fn made(&self, message: &[u8]) -> bool {
        message.len() >= HEADER_LEN && {
            let found: [u8; 8] = array(message, field::TAG);
            u64::from_ne_bytes(self.tag(message)) ^ u64::from_ne_bytes(found) == 0
        }
    }
}

/// An address as one of IPv6; one of IPv4 is mapped (RFC 4291 §2.5.5.2).
fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
    .octets()
}
