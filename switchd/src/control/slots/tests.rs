use super::*;
use common::netlink::{Action, Body, Message};
use common::units::Rate;
use std::time::{Duration, SystemTime};

struct Rig {
    mirror: Mirror,
    config: Config,
    slots: Slots,
    now: Time,
}

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        mtu: 1500,
        up: true,
        running: true,
        ..Link::default()
    }
}

impl Rig {
    /// Ports `swp1`, by name, and `veth1`, by pattern, with the interfaces 1 and 2.
    fn new(spare: usize) -> Self {
        let config = Config {
            ports: vec!["swp1".to_owned(), "veth*".to_owned()],
            ..Config::default()
        };
        let open = [("swp1", 1), ("veth1", 2)];
        let open = open.map(|(name, index)| (config.settings_of(name).unwrap(), index, 3000));
        let mut rig = Self {
            mirror: Mirror::new(),
            slots: Slots::new(open.into_iter(), spare),
            config,
            now: Time::from_nanos(1),
        };
        rig.set(link(1, "swp1"));
        rig.set(link(2, "veth1"));
        rig
    }

    fn tell(&mut self, action: Action, link: Link) {
        let message = Message {
            flags: 0,
            sequence: 0,
            port: 0,
            lifetime: None,
            body: Body::Link(action, link),
        };
        self.mirror.apply(message, false, &mut Vec::new());
    }

    fn set(&mut self, link: Link) {
        self.tell(Action::Set, link);
    }

    fn remove(&mut self, index: u32) {
        self.tell(Action::Removed, link(index, ""));
    }

    fn follow(&mut self) -> Vec<(usize, Step)> {
        let (mirror, config) = (&self.mirror, &self.config);
        self.slots.follow(mirror, config, self.now).0
    }

    fn state(&self, slot: usize) -> (&str, &'static str) {
        let slot = self.slots.get(slot).unwrap();
        (slot.name(), slot.state())
    }

    fn closed(&mut self, slot: usize) {
        self.slots.closed(slot, &self.mirror, self.now);
    }

    fn problems(&self) -> String {
        self.slots.problems(&self.config).join("\n")
    }
}

/// SW-1: an interface that comes back under its name has its old slot, also with another number; a
/// slot by name is never given away, one by pattern only if no other is left, after a rest.
#[test]
fn slots_belong_to_names() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.follow(), []);
    rig.remove(1);
    rig.remove(2);
    assert_eq!(rig.follow(), [(0, Step::Close), (1, Step::Close)]);
    // Back before it was let go: it waits for that.
    rig.set(link(11, "swp1"));
    assert_eq!(rig.follow(), []);
    rig.closed(0);
    rig.closed(1);
    assert_eq!(rig.follow(), [(0, Step::Open), (1, Step::Forget)]);
    rig.slots.opened(0, 11, 3000);
    rig.remove(11);
    assert_eq!(rig.follow(), [(0, Step::Close)]);
    rig.closed(0);
    assert_eq!(rig.follow(), []);
    assert_eq!(rig.state(0), ("swp1", "absent"));
    rig.set(link(3, "veth3"));
    assert_eq!(rig.follow(), [(2, Step::Open)]);
    rig.slots.opened(2, 3, 3000);
    rig.set(link(4, "veth4"));
    assert_eq!(rig.follow(), [], "the slot of veth1 rests");
    assert!(rig.problems().contains("veth4: it matches and is no port"));
    assert_eq!(rig.slots.refusals(), 1);
    rig.now = rig.slots.deadline();
    assert_eq!(rig.follow(), [(1, Step::Open)]);
    assert_eq!(rig.state(1), ("veth4", "opening"));
    rig.set(link(5, "veth5"));
    rig.now += REST + REST;
    assert_eq!(rig.follow(), [], "that of swp1 is kept");
    rig.set(link(12, "swp1"));
    assert_eq!(rig.follow(), [(0, Step::Open)]);
    assert_eq!(rig.slots.refusals(), 2, "once for each");
}

/// SW-1: who deletes the interface of a port by pattern wants no port: it is forgotten, which is no
/// problem, and its interface that comes back is the same port again. One by name is missed.
#[test]
fn ports_by_pattern_are_forgotten_with_their_interfaces() {
    let mut rig = Rig::new(1);
    let veth1 = |rig: &Rig| rig.slots.get(1).unwrap().clone();
    rig.remove(1);
    rig.remove(2);
    assert_eq!(rig.follow(), [(0, Step::Close), (1, Step::Close)]);
    assert_eq!(rig.problems(), "swp1 is down: there is no such interface");
    rig.closed(0);
    rig.closed(1);
    assert_eq!(rig.problems(), "swp1 is down: there is no such interface");
    assert_eq!(rig.follow(), [(1, Step::Forget)]);
    assert_eq!(rig.follow(), [], "said once");
    assert_eq!(rig.problems(), "swp1 is down: there is no such interface");
    assert_eq!((rig.slots.forgotten(), veth1(&rig).is_port()), (1, false));
    rig.set(link(12, "veth1"));
    assert_eq!(rig.follow(), [(1, Step::Open)]);
    assert!(veth1(&rig).is_port());
    // One that could not be opened is forgotten as well.
    rig.slots.failed(1, "busy".to_owned(), 1500, rig.now);
    assert_eq!(rig.follow(), []);
    rig.remove(12);
    assert_eq!(rig.follow(), [(1, Step::Forget)]);
    assert_eq!(rig.slots.forgotten(), 2);
    // The link of one that is there is down: that is a problem.
    rig.set(link(13, "veth1"));
    assert_eq!(rig.follow(), [(1, Step::Open)]);
    assert!(rig.problems().contains("veth1 is down: it is being opened"));
}

/// SW-1: under a name that matches a port goes on; under another, or if the settings of that name
/// differ, it is let go.
#[test]
fn renamed_interfaces_stay_ports_if_they_may() {
    let mut rig = Rig::new(1);
    rig.set(link(2, "veth9"));
    let settings = rig.config.settings_of("veth9").unwrap();
    assert_eq!(rig.follow(), [(1, Step::Rename(settings))]);
    assert_eq!(rig.follow(), []);
    rig.set(link(2, "other"));
    assert_eq!(rig.follow(), [(1, Step::Close)]);
    rig.closed(1);
    assert_eq!(rig.follow(), [(1, Step::Forget)]);
    assert_eq!(rig.state(1), ("veth9", "forgotten"));
    let text = "port = [{ name = \"veth7\", speed = \"1Gbps\" }]\nports = [\"swp1\", \"veth*\"]";
    rig.config = toml::from_str(text).unwrap();
    rig.set(link(1, "veth7"));
    assert_eq!(rig.follow(), [(0, Step::Close)], "another speed");
    let problems = rig.problems();
    assert!(problems.contains("swp1 is down"), "{problems}");
    rig.closed(0);
    assert_eq!(rig.follow(), [(2, Step::Open)]);
    let speed = rig.slots.get(2).unwrap().settings.clone().unwrap().speed;
    assert_eq!(speed, crate::config::Speed::Rate(Rate::from_gbps(1)));
}

/// SW-1: what cannot be opened is tried again, later each time, and at once when its interface or
/// its MTU is another.
#[test]
fn failures_are_tried_again() {
    let mut rig = Rig::new(1);
    rig.set(Link {
        mtu: 9000,
        ..link(2, "veth1")
    });
    assert_eq!(rig.follow(), [(1, Step::Close)]);
    rig.closed(1);
    assert_eq!(rig.state(1), ("veth1", "failed"));
    assert!(rig.problems().contains("veth1 is down: MTU 9000 is above"));
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert_eq!(rig.follow(), [], "not yet");
        let retry_at = rig.slots.deadline();
        waits.push(retry_at.since(rig.now).nanos() / 1_000_000);
        rig.now = retry_at;
        assert_eq!(rig.follow(), [(1, Step::Open)]);
        rig.slots.failed(1, "busy".to_owned(), 9000, rig.now);
    }
    assert_eq!(
        waits,
        [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]
    );
    rig.set(link(2, "veth1"));
    assert_eq!(rig.follow(), [(1, Step::Open)]);
    rig.slots.opened(1, 2, 3000);
    assert_eq!(rig.problems(), "");
}

/// SW-1: interfaces that cannot be ports are left alone: stacked ones by pattern, those that are no
/// Ethernet devices.
#[test]
fn some_interfaces_are_no_ports() {
    let mut rig = Rig::new(2);
    rig.set(Link {
        kind: Some("vlan".to_owned()),
        ..link(3, "veth1.7")
    });
    rig.set(link(4, "lo"));
    rig.set(link(5, "eth0"));
    assert_eq!(rig.follow(), []);
    rig.set(link(6, "veth6"));
    assert_eq!(rig.follow(), [(2, Step::Open)]);
    rig.slots
        .unfit(2, "no Ethernet".to_owned(), &rig.config, rig.now);
    assert_eq!(rig.follow(), [], "it is not tried again");
    assert_eq!(rig.state(2), ("", "vacant"));
    assert_eq!(rig.problems(), "");
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// MG-5: a link's history begins with what it was first, and counts ups and downs, not reasons.
#[test]
fn links_have_a_history() {
    let mut history = LinkHistory::default();
    let up = LinkState::of(Some(&link(1, "swp1")));
    let dark = LinkState {
        carrier: false,
        ..up
    };
    let mut note = |state, seconds| {
        let change = history.note(state, None, at(seconds));
        change.map(|change| (change.is_up, change.unseen))
    };
    assert_eq!(note(up, 1), None);
    assert_eq!(note(dark, 2), Some((false, 0)));
    assert_eq!(dark.why_down(), Some("no carrier"));
    assert_eq!(note(LinkState::of(None), 3), None);
    assert_eq!(note(up, 4), Some((true, 0)));
    assert_eq!((history.ups, history.downs), (1, 1));
    assert_eq!(history.changed, Some(at(4)));
}

/// MG-5: flaps that are over before they are told count as the kernel counts them: between two
/// looks a link went down as often as it came up, once more or once less. What a device does that
/// is set down does not count, and another interface begins anew.
#[test]
fn flaps_too_fast_to_be_told_are_counted() {
    let mut history = LinkHistory::default();
    let mut look = |index, (admin, carrier), (ups, downs)| {
        let link = Link {
            up: admin,
            running: carrier,
            carrier_ups: ups,
            carrier_downs: downs,
            ..link(index, "swp1")
        };
        let (state, carriers) = (LinkState::of(Some(&link)), Carriers::of(Some(&link)));
        let change = history.note(state, carriers, at(1));
        let change = change.map(|change| (change.is_up, change.unseen));
        (change, (history.ups, history.downs))
    };
    let (up, dark, off) = ((true, true), (true, false), (false, false));
    assert_eq!(look(1, up, (7, 9)), (None, (0, 0)));
    assert_eq!(look(1, up, (10, 12)), (Some((true, 3)), (3, 3)));
    assert_eq!(look(1, up, (10, 12)), (None, (3, 3)));
    assert_eq!(look(1, dark, (12, 15)), (Some((false, 2)), (5, 6)));
    assert_eq!(look(1, dark, (13, 16)), (Some((false, 1)), (6, 7)));
    assert_eq!(look(1, up, (14, 16)), (Some((true, 0)), (7, 7)));
    // Its administrator sets it down, whose carrier goes with that or stays.
    assert_eq!(look(1, (false, true), (14, 16)), (Some((false, 0)), (7, 8)));
    assert_eq!(look(1, off, (20, 23)), (None, (7, 8)));
    assert_eq!(look(1, up, (21, 23)), (Some((true, 0)), (8, 8)));
    // It is counted before it is told of.
    assert_eq!(look(1, up, (21, 24)), (None, (8, 8)));
    assert_eq!(look(1, dark, (21, 24)), (Some((false, 0)), (8, 9)));
    assert_eq!(look(1, off, (21, 24)), (None, (8, 9)));
    assert_eq!(look(1, dark, (22, 24)), (None, (8, 9)));
    assert_eq!(look(1, up, (22, 24)), (Some((true, 0)), (9, 9)));
    assert_eq!(look(2, up, (500, 500)), (None, (9, 9)));
    assert_eq!(look(2, up, (501, 501)), (Some((true, 1)), (10, 10)));
}

/// SW-1: an interface that goes and is back before anybody has looked, under its number, is another
/// one: the port of the first is let go, whatever the second is called.
#[test]
fn interfaces_that_return_at_once_are_others() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.follow(), []);
    for (slot, index, name) in [(0, 1, "swp1"), (1, 2, "veth1")] {
        rig.remove(index);
        rig.set(link(index, name));
        assert_eq!(rig.follow(), [(slot, Step::Close)]);
        assert_eq!(rig.follow(), []);
        rig.closed(slot);
        assert_eq!(rig.follow(), [(slot, Step::Open)]);
        rig.slots.opened(slot, index, 3000);
        assert_eq!(rig.follow(), []);
    }
    // Under another name that matches it was no renaming.
    rig.remove(2);
    rig.set(link(2, "veth9"));
    assert_eq!(rig.follow(), [(1, Step::Close)]);
    rig.closed(1);
    assert_eq!(rig.follow(), [(1, Step::Forget), (2, Step::Open)]);
    // It goes and comes back while it is opened.
    rig.remove(2);
    rig.set(link(2, "veth9"));
    assert_eq!(rig.follow(), []);
    rig.slots.opened(2, 2, 3000);
    assert_eq!(rig.follow(), [(2, Step::Close)]);
    // And with the name under another number.
    rig.remove(1);
    rig.set(link(31, "swp1"));
    assert_eq!(rig.follow(), [(0, Step::Close)]);
    rig.closed(0);
    assert_eq!(rig.follow(), [(0, Step::Open)]);
}

/// SW-1: that an interface could not be opened, or is no Ethernet device, says nothing of another
/// one with its number.
#[test]
fn refusals_are_of_one_interface() {
    let mut rig = Rig::new(1);
    rig.set(link(3, "veth3"));
    assert_eq!(rig.follow(), [(2, Step::Open)]);
    let (config, now) = (&rig.config, rig.now);
    rig.slots.unfit(2, "no Ethernet".to_owned(), config, now);
    assert_eq!(rig.follow(), []);
    rig.remove(3);
    rig.set(link(3, "veth3"));
    assert_eq!(rig.follow(), [(2, Step::Open)]);
    rig.slots.failed(2, "busy".to_owned(), 1500, rig.now);
    assert_eq!(rig.follow(), []);
    rig.remove(3);
    rig.set(link(3, "veth3"));
    assert_eq!(rig.follow(), [(2, Step::Open)]);
}
