//! Stations that an operator has set, and more stations than switchd has room for.

use lab::observe::{eventually, rows};
use lab::{privileged, shared};

use crate::rig::{Rig, SETTLE};

/// Addresses that nobody has: those of stations that are set by hand.
fn mac(number: usize) -> String {
    format!("02:00:00:00:77:{number:02x}")
}

/// Frames that a host got from its device.
fn received(rig: &Rig, host: &str) -> u64 {
    let file = "/sys/class/net/leaf1/statistics/rx_packets";
    rig.on(host, &format!("cat {file}")).trim().parse().unwrap()
}

/// Sends frames of h1 to station `number`, which answers nothing, and returns how many more h2 got,
/// how many switchd forwarded, and how many it gave to the kernel.
fn sent(rig: &Rig, number: usize) -> [u64; 3] {
    let address = format!("192.0.2.{}", 100 + number);
    let lladdr = mac(number);
    rig.on(
        "h1",
        &format!("ip neighbour replace {address} lladdr {lladdr} dev leaf1 nud permanent"),
    );
    let look = || {
        let bridged = rig.count("leaf1", "h1", "bridged_packets");
        [received(rig, "h2"), bridged, rig.punted("leaf1")]
    };
    let before = look();
    assert_eq!(rig.ping("h1", &address, 20).received, 0);
    let after = look();
    [0, 1, 2].map(|what| after[what] - before[what])
}

/// SW-1: switchd forwards to a station that was set by hand, by the port that it was set at, from
/// the first frame on; one that is moved or removed by hand is followed.
#[test]
fn static_stations_are_followed() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("brstatic", 1, "");
    rig.wait_answer("h1", "192.0.2.2");
    let set = |port: &str| {
        let line = format!("bridge fdb replace {} dev {port} master static", mac(1));
        rig.on("leaf1", &line);
        let at = rig.wait_agreement("leaf1");
        let is_there = |(found, _, of): &(String, u64, String)| *found == mac(1) && of == port;
        assert!(at.iter().any(is_there), "{at:?}");
    };
    set("h2");
    let [at_h2, bridged, punted] = sent(&rig, 1);
    assert!(
        at_h2 >= 20 && bridged >= 20 && punted < 10,
        "{at_h2} {bridged} {punted}"
    );
    set("spine1");
    let [at_h2, bridged, punted] = sent(&rig, 1);
    assert!(
        at_h2 < 10 && bridged >= 20 && punted < 10,
        "{at_h2} {bridged} {punted}"
    );
    rig.on(
        "leaf1",
        &format!("bridge fdb del {} dev spine1 master", mac(1)),
    );
    eventually("it is forgotten", SETTLE, || {
        let known = rig.known("leaf1");
        match known.iter().any(|(found, ..)| *found == mac(1)) {
            false => Ok(()),
            true => Err(format!("{known:?}")),
        }
    });
    // The bridge floods to all ports.
    let [at_h2, bridged, punted] = sent(&rig, 1);
    assert!(
        at_h2 >= 20 && bridged < 10 && punted >= 20,
        "{at_h2} {bridged} {punted}"
    );
}

/// SW-1: stations for which switchd has no room are the kernel's: their frames arrive, an event
/// says so, and another when there is room again.
#[test]
fn stations_beyond_the_room_are_the_kernels() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::configured("brfull", 1, "", "[bridge]\nfdb_entries = 16");
    rig.wait_answer("h1", "192.0.2.2");
    let numbers: Vec<usize> = (1..=20).collect();
    for number in &numbers {
        let line = format!("bridge fdb replace {} dev h2 master static", mac(*number));
        rig.on("leaf1", &line);
    }
    let events = || {
        let all = rows(rig.lab.switchctl("leaf1", &["events"]).unwrap());
        let kinds = all
            .iter()
            .map(|row| row["kind"].as_str().unwrap().to_owned());
        kinds
            .filter(|kind| kind.starts_with("fdb_"))
            .collect::<Vec<_>>()
    };
    let told = |wanted: &[&str]| {
        eventually(&format!("{wanted:?}"), SETTLE, || {
            let mut found = events();
            found.sort();
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        });
    };
    told(&["fdb_full"]);
    let known = rig.known("leaf1");
    assert_eq!(known.len(), 16, "{known:?}");
    let is_held = |number: &usize| known.iter().any(|(found, ..)| *found == mac(*number));
    let (held, beyond): (Vec<usize>, Vec<usize>) = numbers.iter().partition(|it| is_held(it));
    assert!(held.len() >= 10 && beyond.len() >= 4, "{held:?} {beyond:?}");
    let [at_h2, bridged, _] = sent(&rig, held[0]);
    assert!(at_h2 >= 20 && bridged >= 20, "{at_h2} {bridged}");
    let [at_h2, _, punted] = sent(&rig, beyond[0]);
    assert!(at_h2 >= 20 && punted >= 20, "{at_h2} {punted}");
    for number in &numbers[8..] {
        rig.on(
            "leaf1",
            &format!("bridge fdb del {} dev h2 master", mac(*number)),
        );
    }
    told(&["fdb_full", "fdb_room"]);
    rig.wait_agreement("leaf1");
    let [at_h2, bridged, _] = sent(&rig, 8);
    assert!(at_h2 >= 20 && bridged >= 20, "{at_h2} {bridged}");
}
