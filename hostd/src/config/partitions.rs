//! `transport.partitions`: the keys of the partitions that the port is in.

use super::Transport;
use crate::verbs::Partitions;
use common::config::Refusal;

impl Transport {
    /// The table of partition keys; the default one in place of one that is refused.
    pub fn table(&self) -> Partitions {
        Partitions::new(&self.partitions).unwrap_or_default()
    }

    pub(super) fn validate_partitions(&self) -> Result<(), Refusal> {
        let table = Partitions::new(&self.partitions);
        let refusal = |error| Refusal::alone("transport.partitions", format!("{error}"));
        table.map(drop).map_err(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-1: keys that are no table are refused with the key of the configuration.
    #[test]
    fn partitions_are_checked() {
        let with = |keys: &[u16]| Transport {
            partitions: keys.to_vec(),
            ..Transport::default()
        };
        assert!(with(&[0xffff, 0x8005, 7]).validate_partitions().is_ok());
        assert_eq!(with(&[7, 0xffff]).table().keys(), [7, 0xffff]);
        for wrong in [&[][..], &[0x8000], &[5, 0x8005], &[1; 17]] {
            let refused = with(wrong).validate_partitions();
            let text = format!("{:?}", refused.expect_err("refused"));
            assert!(text.contains("transport.partitions"), "{text}");
        }
    }
}
