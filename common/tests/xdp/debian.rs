//! The same by the kernel of Debian 12, in a guest: rings of its sockets can only be mapped before
//! they are bound, and devices have no multi-buffer frames.

use std::time::Duration;

/// Those that measure no rates: a guest is slow.
const IN_GUEST: &[&str] = &[
    "jumbo::without_several_chunks_the_mtu_is_limited",
    "opening::a_port_can_be_opened_again_at_once",
    "opening::modes_are_chosen_shown_and_required",
    "opening::several_memories_fit_in_one_namespace",
    "punting::vlans_of_the_kernel_are_punted",
    "punting::whole_ports_and_discovery_are_punted",
    "steering::packets_are_steered_by_the_table",
    "traffic::a_two_port_reflector_carries_ping_and_datagrams",
    "traffic::every_queue_of_a_device_has_a_socket",
];

#[test]
fn a_guest_serves_af_xdp() {
    if guest::available() {
        guest::run_selected(IN_GUEST, Duration::from_secs(1200));
    }
}
