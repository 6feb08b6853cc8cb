use super::*;

fn options(leaves: u8, spines: u8, hosts: u8) -> Options {
    Options {
        leaves,
        spines,
        hosts,
        ..Options::default()
    }
}

#[test]
fn hosts_fill_one_leaf_after_the_other() {
    let plan = Topology::plan(&options(2, 2, 4));
    let leaf_of = |host| {
        plan.ends(host)
            .next()
            .expect("a host has a link")
            .interface
            .clone()
    };
    assert_eq!(
        ["h1", "h2", "h3", "h4"].map(leaf_of),
        ["leaf1", "leaf1", "leaf2", "leaf2"]
    );
    assert_eq!(plan.address("h3", false), Some("10.2.3.2".parse().unwrap()));
    assert_eq!(
        plan.address("h3", true),
        Some("fd00:2:3::2".parse().unwrap())
    );
    assert_eq!(plan.nodes.len(), 8);
    assert_eq!(plan.links.len(), 8);
}

#[test]
fn every_address_and_interface_is_unique() {
    let plan = Topology::plan(&options(MAX_LEAVES, MAX_SPINES, MAX_HOSTS));
    let mut addresses = BTreeSet::new();
    let mut interfaces = BTreeSet::new();
    for end in plan
        .links
        .iter()
        .flat_map(|link| [&link.lower, &link.upper])
    {
        assert!(interfaces.insert((end.node.clone(), end.interface.clone())));
        assert!(
            end.addresses
                .iter()
                .all(|(address, _)| addresses.insert(*address))
        );
    }
}

#[test]
fn a_leaf_uses_the_spines_that_have_a_link_to_both() {
    let plan = Topology::plan(&options(3, 2, 3));
    let leaf = plan.node("leaf1").unwrap();
    let hops = |down: &[(&str, &str)], destination: &str| {
        let down = down
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect();
        plan.routes(leaf, &down)
            .into_iter()
            .find(|route| route.destination == destination)
            .map(|route| {
                route
                    .next_hops
                    .into_iter()
                    .map(|(_, i)| i)
                    .collect::<Vec<_>>()
            })
    };
    assert_eq!(hops(&[], "10.2.0.0/16").unwrap(), ["spine1", "spine2"]);
    assert_eq!(hops(&[], "fd00:2::/32").unwrap(), ["spine1", "spine2"]);
    assert_eq!(
        hops(&[("spine1", "leaf2")], "10.2.0.0/16").unwrap(),
        ["spine2"]
    );
    assert_eq!(
        hops(&[("spine1", "leaf2")], "10.3.0.0/16").unwrap(),
        ["spine1", "spine2"]
    );
    assert_eq!(
        hops(&[("leaf1", "spine1"), ("spine2", "leaf1")], "10.2.0.0/16"),
        None
    );
}

#[test]
fn options_outside_of_the_plan_are_refused() {
    for (bad, option) in [
        (
            Options {
                name: "Fab".into(),
                ..Options::default()
            },
            "--name",
        ),
        (
            Options {
                name: "a-b".into(),
                ..Options::default()
            },
            "--name",
        ),
        (options(0, 2, 4), "--leaves"),
        (options(2, 33, 4), "--spines"),
        (options(2, 2, 251), "--hosts"),
        (
            Options {
                mtu: 9217,
                ..Options::default()
            },
            "--mtu",
        ),
        (
            Options {
                queues: 9,
                ..Options::default()
            },
            "--queues",
        ),
        (
            Options {
                speed: 1,
                ..Options::default()
            },
            "--speed",
        ),
    ] {
        match bad.check() {
            Err(LabError::BadOption { option: named, .. }) => assert_eq!(named, option),
            other => panic!("{option}: {other:?}"),
        }
    }
    assert!(Options::default().check().is_ok());
}

/// A link that is not there is named, with the links that its nodes have, or with the nodes there
/// are; and so is a link with two taps.
#[test]
fn links_that_cannot_be_are_named() {
    let refusal = |taps: &[(&str, &str)]| {
        let taps = taps.iter().map(|(a, b)| (a.to_string(), b.to_string()));
        let options = Options {
            taps: taps.collect(),
            ..Options::default()
        };
        options.check().map_err(|error| error.to_string())
    };
    assert_eq!(
        refusal(&[("leaf1", "leaf2")]).unwrap_err(),
        "--tap: no link between 'leaf1' and 'leaf2': leaf1 has links to h1, h2, spine1, spine2; \
         leaf2 has links to h3, h4, spine1, spine2"
    );
    assert_eq!(
        refusal(&[("h1", "h1")]).unwrap_err(),
        "--tap: no link between 'h1' and 'h1': h1 has links to leaf1"
    );
    assert_eq!(
        refusal(&[("leaf1", "spine3")]).unwrap_err(),
        "--tap: no node 'spine3': there are spine1, spine2, leaf1, leaf2, h1, h2, h3, h4"
    );
    for again in [("leaf1", "spine1"), ("spine1", "leaf1")] {
        let refused = refusal(&[("leaf1", "spine1"), ("h1", "leaf1"), again]).unwrap_err();
        let (a, b) = again;
        assert_eq!(
            refused,
            format!("--tap: the link between '{a}' and '{b}' is named twice")
        );
    }
    assert_eq!(refusal(&[("spine1", "leaf1"), ("leaf1", "spine2")]), Ok(()));
}

/// A number is read within its bound; outside of it the bound is named, and what sets it.
#[test]
fn numbers_outside_of_their_bound_are_refused() {
    assert_eq!(Bound::HOSTS.parse("1"), Ok(1));
    assert_eq!(Bound::HOSTS.parse("250"), Ok(MAX_HOSTS));
    for number in ["0", "251", "300", "-1", "5000000000"] {
        assert_eq!(
            Bound::HOSTS.parse(number).unwrap_err(),
            format!(
                "{number} is not in 1..=250: a host's number is the third octet of its address"
            )
        );
    }
    assert_eq!(
        Bound::QUEUES.parse("two").unwrap_err(),
        "not a number in 1..=8"
    );
}

/// The hosts of each leaf are dealt out to the VLANs in turn, so that a VLAN has hosts on all
/// leaves; there are VLANs in one network only.
#[test]
fn vlans_have_hosts_on_each_leaf() {
    let options = Options {
        hosts: 6,
        l2: true,
        vlans: 2,
        ..Options::default()
    };
    assert!(options.check().is_ok());
    let plan = Topology::plan(&options);
    let of = |node: &str| plan.vlan_of(node);
    let hosts = ["h1", "h2", "h3", "h4", "h5", "h6"].map(of);
    assert_eq!(hosts, [10, 20, 10, 10, 20, 10].map(Some));
    assert_eq!(["leaf1", "spine1", "h7"].map(of), [None; 3]);
    assert_eq!(plan.vlan_ids().collect::<Vec<_>>(), [10, 20]);
    let plain = Topology::plan(&Options {
        vlans: 0,
        ..options.clone()
    });
    assert_eq!(plain.vlan_of("h1"), None);
    for wrong in [
        Options {
            l2: false,
            ..options.clone()
        },
        Options {
            vlans: 17,
            hosts: 250,
            ..options.clone()
        },
        Options {
            vlans: 4,
            ..options
        },
    ] {
        let refused = wrong.check().unwrap_err().to_string();
        assert!(refused.starts_with("--vlans: "), "{refused}");
    }
}
