//! Metrics of sub-paths, summed by the port that they lead through (MG-5).
//!
//! A port is a plane of the network, or the first link of all ways. So the sums tell planes apart,
//! and there are as many of them as ports. Sub-paths themselves come and go with queue pairs, and
//! have no name that others share: those are shown by `hostctl paths`.

use crate::stats::PathCounters;
use common::metrics::Families;

/// What the sub-paths through each port count.
pub(super) fn metrics(ports: &[(&str, &PathCounters)], families: &mut Families) {
    type Read = fn(&PathCounters) -> u64;
    let table: [(&str, &str, Read); 6] = [
        (
            "hostd_path_transmit_packets_total",
            "Data packets sent on sub-paths through the port, retransmissions included.",
            |it| it.tx_packets,
        ),
        (
            "hostd_path_transmit_bytes_total",
            "Bytes of data packets sent on sub-paths through the port.",
            |it| it.tx_bytes,
        ),
        (
            "hostd_path_acknowledged_packets_total",
            "Data packets of own requests that were acknowledged.",
            |it| it.acknowledged,
        ),
        (
            "hostd_path_marked_packets_total",
            "Those of them that a switch marked (Congestion Experienced), as the peer says.",
            |it| it.marked,
        ),
        (
            "hostd_path_trimmed_packets_total",
            "Data packets whose payload a switch cut off, as the peer says.",
            |it| it.trimmed,
        ),
        (
            "hostd_path_lost_packets_total",
            "Data packets that were taken for lost.",
            |it| it.lost,
        ),
    ];
    for (name, help, read) in table {
        let mut family = families.counter(name, help);
        for (port, counters) in ports {
            family.add(&[("port", port)], read(counters));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-5: each count has a sample for each port, and none for anything else.
    #[test]
    fn paths_are_told_by_port() {
        let first = PathCounters {
            tx_packets: 1,
            tx_bytes: 2,
            acknowledged: 3,
            marked: 4,
            trimmed: 5,
            lost: 6,
        };
        let second = PathCounters {
            lost: 7,
            ..PathCounters::default()
        };
        let mut families = Families::new();
        metrics(&[("eth0", &first), ("eth1", &second)], &mut families);
        let text = families.text();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(
            samples.collect::<Vec<_>>(),
            [
                "hostd_path_transmit_packets_total{port=\"eth0\"} 1",
                "hostd_path_transmit_packets_total{port=\"eth1\"} 0",
                "hostd_path_transmit_bytes_total{port=\"eth0\"} 2",
                "hostd_path_transmit_bytes_total{port=\"eth1\"} 0",
                "hostd_path_acknowledged_packets_total{port=\"eth0\"} 3",
                "hostd_path_acknowledged_packets_total{port=\"eth1\"} 0",
                "hostd_path_marked_packets_total{port=\"eth0\"} 4",
                "hostd_path_marked_packets_total{port=\"eth1\"} 0",
                "hostd_path_trimmed_packets_total{port=\"eth0\"} 5",
                "hostd_path_trimmed_packets_total{port=\"eth1\"} 0",
                "hostd_path_lost_packets_total{port=\"eth0\"} 6",
                "hostd_path_lost_packets_total{port=\"eth1\"} 7",
            ]
        );
    }
}
