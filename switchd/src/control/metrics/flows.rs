//! Metrics of RoCEv2 flow analysis. They appear once flows are followed.

use crate::control::flows::{Book, Exported, Exporter};
use crate::control::state::State;
use common::metrics::Families;

type OfFlows = (&'static str, &'static str, fn(&Book) -> u64);

const COUNTERS: [OfFlows; 8] = [
    (
        "switchd_flows_packets_total",
        "RoCEv2 packets of connections that arrived.",
        |book| book.counted(|it| it.packets.get()),
    ),
    (
        "switchd_flows_table_full_packets_total",
        "Packets of connections that were not followed because the table was full.",
        |book| book.counted(|it| it.unfollowed.get()),
    ),
    (
        "switchd_flows_unconnected_packets_total",
        "RoCEv2 packets that belong to no connection: datagrams.",
        |book| book.counted(|it| it.unconnected.get()),
    ),
    (
        "switchd_flows_cut_packets_total",
        "RoCEv2 packets that end inside of a header.",
        |book| book.counted(|it| it.cut.get()),
    ),
    (
        "switchd_flows_setups_lost_total",
        "Messages of connection management that were not read in time.",
        |book| book.counted(|it| it.setups_lost.get()),
    ),
    (
        "switchd_flows_setups_refused_total",
        "Messages of connection management that made no sense or for which there was no room.",
        Book::setups_refused,
    ),
    (
        "switchd_flows_ended_total",
        "Flows in which nothing passed for the inactive time.",
        |book| book.aged().0,
    ),
    (
        "switchd_flows_active_periods_total",
        "Times that the active time of a flow was over.",
        |book| book.aged().1,
    ),
];

type OfExport = (&'static str, &'static str, fn(&Exported) -> u64);

const EXPORT: [OfExport; 4] = [
    (
        "switchd_flows_export_records_total",
        "Records of flows that were sent to the collector.",
        |it| it.records,
    ),
    (
        "switchd_flows_export_dropped_records_total",
        "Records of flows that were lost because too many messages waited.",
        |it| it.dropped,
    ),
    (
        "switchd_flows_export_messages_total",
        "IPFIX messages that were sent, those with templates included.",
        |it| it.messages,
    ),
    (
        "switchd_flows_export_failures_total",
        "Times that sending to the collector failed.",
        |it| it.failures,
    ),
];

fn scrape_export(families: &mut Families, exporter: &Exporter) {
    for (name, help, count) in EXPORT {
        let value = count(&exporter.counted);
        families.counter(name, help).add(&[], value);
    }
    let help = "IPFIX messages that wait to be sent.";
    families
        .gauge("switchd_flows_export_waiting_messages", help)
        .add(&[], exporter.waiting() as u64);
}

impl State {
    pub(super) fn scrape_flows(&self, families: &mut Families) {
        let Some(analysis) = &self.flows else { return };
        let book = &analysis.book;
        for (name, help, count) in COUNTERS {
            families.counter(name, help).add(&[], count(book));
        }
        if let Some(exporter) = &analysis.exporter {
            scrape_export(families, exporter);
        }
        let help = "Connections that were asked for at the port and found no room.";
        let mut by_port = families.counter("switchd_flows_setups_without_room_total", help);
        let ports = self.routing.publisher().ports();
        for (port, count) in book.setups_without_room() {
            if let Some(entry) = ports.get(port.index()) {
                by_port.add(&[("port", &entry.name)], count);
            }
        }
        let help = "Directions of flows that are followed.";
        let used = book.counted(|it| it.used.get());
        families
            .gauge("switchd_flows_directions", help)
            .add(&[], used);
        let help = "Directions of flows for which there is room.";
        families
            .gauge("switchd_flows_directions_limit", help)
            .add(&[], book.room() as u64);
    }
}
