//! Limits of storms, and of the memory that a machine has.

use super::*;
use common::xdp::PuntLimit;

/// SW-1: each kind of storm has the limit of its own key.
#[test]
fn storms_have_limits_of_their_own() {
    let text = "ports = [\"a\"]\n[bridge]\nbroadcast_packets_per_second = 1\nmulticast_packets_per_second = 2\n\
                unknown_packets_per_second = 3\ncontrol_packets_per_second = 4";
    let limits = load(text, &[]).unwrap().bridge.storm_limits();
    let of = |limit: PuntLimit| limit.packets_per_second;
    let all = [
        of(limits.broadcast),
        of(limits.multicast),
        of(limits.unknown),
        of(limits.control),
    ];
    assert_eq!(all, [1, 2, 3, 4]);
}

/// MG-1: packet memory that the machine does not have is refused, by the key that takes most of it.
#[test]
fn packet_memory_fits_in_the_machine() {
    let fits = |lines: &str, mib: u64| {
        let config = load(&format!("ports = [\"a\", \"b*\"]\n{lines}"), &[]).unwrap();
        let fits = config.fits_memory(Some(mib << 20));
        fits.map_err(|refusal| refusal.to_string())
    };
    // 4,096 bytes for each of 65,536 cells; five queues with rings of 256.
    let buffer = "[qos.buffer]\nsize_bytes = 16777216";
    assert_eq!(fits(buffer, 512), Ok(()));
    let said = fits(buffer, 255).unwrap_err();
    assert!(
        said.starts_with("qos.buffer.size_bytes: packet memory would take 336 MiB or more"),
        "{said}"
    );
    assert!(
        said.contains("(256 MiB for packets in the buffer, "),
        "{said}"
    );
    assert!(
        said.ends_with("the rings of 5 queues), and the machine has 255 MiB"),
        "{said}"
    );
    let rings = "[memory]\nring = 32768";
    let said = fits(rings, 1024).unwrap_err();
    assert!(
        said.starts_with("memory.ring: packet memory would take "),
        "{said}"
    );
    assert_eq!(
        load(buffer, &["ports=[\"a\"]"]).unwrap().fits_memory(None),
        Ok(())
    );
}
