//! Next hop objects whose routes the kernel does not tell of.

use super::*;

/// SW-2: with `net.ipv4.nexthop_compat_mode` 0 the kernel tells of next hop objects only, and not
/// of the routes that they change or take along: those of both families are followed all the same.
#[test]
fn routes_follow_their_objects_without_a_word() {
    in_namespace(|| {
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").expect("a setting");
        let mut watch = open();
        ip("nexthop add id 1 via 10.0.0.2 dev left");
        ip("nexthop add id 2 via 10.0.1.2 dev right");
        ip("nexthop add id 4 via 2001:db8::2 dev left");
        ip("nexthop add id 10 group 1/2");
        ip("route add 10.9.0.0/16 nhid 10");
        ip("route add 10.10.0.0/16 nhid 1");
        ip("-6 route add 2001:db8:1::/48 nhid 4");
        let (of_group, of_one) = (key("10.9.0.0/16", 0), key("10.10.0.0/16", 0));
        let of_v6 = key("2001:db8:1::/48", 1024);
        until(&mut watch, |mirror| {
            let object = |key| mirror.route(key)?.next_hop;
            [&of_group, &of_one, &of_v6].map(object) == [Some(10), Some(1), Some(4)]
        });
        ip("nexthop replace id 1 via 10.0.0.3 dev left");
        until(&mut watch, |mirror| {
            let kind = mirror.next_hop(1).map(|it| &it.kind);
            let gateway = Some("10.0.0.3".parse().expect("an address"));
            matches!(kind, Some(NextHopKind::Single(hop)) if hop.gateway == gateway)
        });
        ip("nexthop del id 1");
        ip("nexthop del id 4");
        until(&mut watch, |mirror| {
            let is_left = |key| mirror.route(key).is_some();
            [&of_group, &of_one, &of_v6].map(is_left) == [true, false, false]
        });
        follow(&mut watch, Span::from_millis(300));
        compare(&mut watch, "the objects are gone");
        assert_eq!(watch.follower().statistics().malformed, 0);
    });
}
