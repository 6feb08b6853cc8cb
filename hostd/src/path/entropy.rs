//! Entropy values: what makes switches send the packets of different sub-paths different ways
//! (HT-12).

/// The entropy value of a sub-path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entropy {
    /// UDP source port, 0xC000–0xFFFF as RoCEv2 devices use.
    pub(crate) port: u16,
    /// IPv6 flow label, 20 bits.
    pub(crate) flow_label: u32,
}

impl Entropy {
    /// The value of sub-path `path` of the queue pair `identity`, after the path was given up
    /// `generation` times. Always the same for the same arguments; the ports of different paths of
    /// one queue pair and one generation differ.
    pub(crate) fn derive(identity: u64, path: u8, generation: u32) -> Self {
        let mixed = mix(identity ^ mix(u64::from(generation)));
        let low14 = |value: u64| u16::try_from(value & 0x3fff).expect("14 bits");
        // Different paths enter a permutation of the 14 bits at different points.
        let port = 0xC000 | scatter(low14(mixed) ^ u16::from(path));
        let label = mix(mixed ^ u64::from(port)) & 0xf_ffff;
        Self {
            port,
            flow_label: u32::try_from(label).expect("20 bits"),
        }
    }
}

/// A permutation of 14 bits that leaves no pattern: switches often hash with a CRC, which is
/// linear, and would map a regular sequence of ports to a regular sequence of paths.
fn scatter(value: u16) -> u16 {
    const MASK: u16 = 0x3fff;
    let mut value = value & MASK;
    for factor in [0x2c1b, 0x1f35, 0x3a6d] {
        value = value.wrapping_mul(factor) & MASK;
        value ^= value >> 7;
    }
    value
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of the argument.
pub(crate) fn mix(value: u64) -> u64 {
    let mut value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// HT-12: one value per path, different between paths, in the range of RoCEv2, and stable.
    #[test]
    fn paths_differ_and_stay() {
        for identity in [0, 1, 0x0012_3456_0000_0017] {
            let ports: BTreeSet<_> = (0..=255)
                .map(|path| Entropy::derive(identity, path, 0).port)
                .collect();
            assert_eq!(ports.len(), 256);
            assert!(ports.iter().all(|&port| port >= 0xC000));
            assert_eq!(
                Entropy::derive(identity, 9, 3),
                Entropy::derive(identity, 9, 3)
            );
            assert_ne!(
                Entropy::derive(identity, 9, 3).port,
                Entropy::derive(identity, 9, 4).port
            );
        }
    }

    #[test]
    fn scattering_is_a_permutation() {
        let images: BTreeSet<_> = (0..0x4000).map(scatter).collect();
        assert_eq!(images.len(), 0x4000);
    }
}
