//! Pauses and headroom of single ports: directions, cables, peers, and the speed that counts.

use super::*;
use crate::tables::policy::FlowControl;
use crate::traffic::headroom::Breakdown;

/// A lossless class at two ports, with more lines in `[headroom]` and `[flow_control]`.
fn compiled(headroom: &str, flow_control: &str, ports: &[PortFacts]) -> Result<Compiled, String> {
    let text = format!(
        "[headroom]\npoll_gap_microseconds = 20\n{headroom}\n[flow_control]\n{flow_control}\n\
         [buffer]\nsize_bytes = 67108864\n\
         [[group]]\ngroups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = \"auto\"\n\
         [[queue]]\nqueues = [3]\nlossless = true"
    );
    let qos: Qos = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
    qos.compile(ports).map_err(|error| error.to_string())
}

const PFC: &str = "mode = \"pfc\"";

/// SW-30, SW-31: pauses are sent and obeyed as configured by port; the last section counts.
#[test]
fn each_port_has_ways_of_its_own() {
    let of = |flow_control: &str| {
        let compiled = compiled("", flow_control, &facts()).unwrap();
        let ports = &compiled.policy.ports;
        [ports[0].flow_control, ports[1].flow_control]
    };
    let quanta = u16::MAX;
    let pfc = |send: bool, obey: bool| FlowControl::Pfc {
        send: if send { 8 } else { 0 },
        obey: if obey { 8 } else { 0 },
        quanta,
    };
    let pause = |send, obey| FlowControl::Pause { send, obey, quanta };
    assert_eq!(of(PFC), [pfc(true, true), pfc(true, true)]);
    for (ways, send, obey) in [
        ("off", false, false),
        ("rx", false, true),
        ("tx", true, false),
        ("both", true, true),
    ] {
        let section = |kind: &str| {
            of(&format!(
                "{PFC}\n[[flow_control.port]]\nports = [\"b\"]\n{kind} = \"{ways}\""
            ))
        };
        let wanted = |kind: FlowControl| {
            if ways == "off" {
                FlowControl::Off
            } else {
                kind
            }
        };
        assert_eq!(section("pfc"), [pfc(true, true), wanted(pfc(send, obey))]);
        assert_eq!(
            section("pause"),
            [pfc(true, true), wanted(pause(send, obey))]
        );
    }
    let twice = "[[flow_control.port]]\npfc = \"both\"\n[[flow_control.port]]\nports = [\"a\"]\npause = \"rx\"";
    assert_eq!(of(twice), [pause(false, true), pfc(true, true)]);
    let twice = "[[flow_control.port]]\nports = [\"?\"]\npfc = \"both\"\n[[flow_control.port]]\nports = [\"a\"]";
    assert_eq!(of(twice), [FlowControl::Off, pfc(true, true)]);
}

/// SW-30, SW-31: PAUSE and PFC on one link are refused, and so are ports that do not exist; a
/// lossless group whose peer is not paused there is a warning.
#[test]
fn a_link_has_one_kind_of_pauses() {
    let with = |lines: &str| {
        compiled(
            "",
            &format!("{PFC}\n[[flow_control.port]]\n{lines}"),
            &facts(),
        )
    };
    let error = with("pfc = \"rx\"\npause = \"tx\"").unwrap_err();
    let wanted = "qos.flow_control.port[0].pause: \"tx\" beside pfc = \"rx\": a link has PAUSE or PFC, not both";
    assert!(error.starts_with(wanted), "{error}");
    let error = with("ports = [\"c\"]\npfc = \"rx\"").unwrap_err();
    let wanted = "qos.flow_control.port[0].ports[0]: no port is called \"c\"; there are a, b";
    assert!(error.starts_with(wanted), "{error}");
    let error = with("pfc = \"on\"").unwrap_err();
    assert!(error.contains("`off`, `rx`, `tx`"), "{error}");
    let warnings = with("ports = [\"b\"]\npfc = \"rx\"").unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("b: group 3 has headroom"),
        "{warnings:?}"
    );
}

/// The headroom of port `a`.
fn headroom(lines: &str, ports: &[PortFacts]) -> Breakdown {
    let compiled = compiled(lines, PFC, ports).unwrap();
    compiled.headroom[0].as_ref().expect("computed").made_of
}

/// SW-12: a peer in software adds its response time and what its device holds; cables and peers are
/// those of the port.
#[test]
fn peers_in_software_take_longer() {
    let of = |lines: &str| headroom(lines, &facts());
    let hardware = of("");
    // 394 quanta at 100 Gb/s.
    assert_eq!(
        (hardware.response.bytes, hardware.peer_backlog.bytes),
        (25_216, 0)
    );
    // 20 µs at 100 Gb/s; a device holds a quarter more than what it sends meanwhile.
    let switchd = of("peer = \"switchd\"");
    assert_eq!(
        (switchd.response.bytes, switchd.peer_backlog.bytes),
        (250_000, 312_500)
    );
    let hostd = of("peer = \"hostd\"");
    assert_eq!(
        (hostd.response.bytes, hostd.peer_backlog.bytes),
        (250_000, 131_072)
    );
    let said = "peer = \"hostd\"\npeer_response_nanoseconds = 1000\npeer_backlog_bytes = 5000";
    let said = of(said);
    assert_eq!(
        (said.response.bytes, said.peer_backlog.bytes),
        (12_500, 5_000)
    );
    // At one port only, and the numbers of the other peer are not those of this one.
    let one = "peer = \"hostd\"\npeer_backlog_bytes = 5000\n[[headroom.port]]\nports = [\"b\"]\npeer = \"switchd\"\n\
               cable_metres = 100";
    let all = compiled(one, PFC, &facts()).unwrap().headroom;
    let [a, b] = [0, 1].map(|port: usize| all[port].as_ref().unwrap().made_of);
    assert_eq!(
        (a.peer_backlog.bytes, b.peer_backlog.bytes),
        (5_000, 312_500)
    );
    assert!(b.cable.bytes > a.cable.bytes);
    let error = compiled("[[headroom.port]]\ncable_metres = 200000", PFC, &facts()).unwrap_err();
    assert!(
        error.starts_with("qos.headroom.port[0].cable_metres: 200000"),
        "{error}"
    );
    let error = compiled("peer = \"friend\"", PFC, &facts()).unwrap_err();
    assert!(error.contains("`hardware`, `switchd`, `hostd`"), "{error}");
}

/// SW-12: where frames are known to be longer they waste less of their cells.
#[test]
fn longer_frames_need_fewer_cells() {
    let of = |bytes: u16| headroom(&format!("shortest_frame_bytes = {bytes}"), &facts()).cells();
    let least = [60, 256, 512, 1024].map(of);
    assert!(least.windows(2).all(|it| it[1] < it[0]), "{least:?}");
    let error = compiled("shortest_frame_bytes = 59", PFC, &facts()).unwrap_err();
    assert!(
        error.starts_with("qos.headroom.shortest_frame_bytes: 59 is not within 60"),
        "{error}"
    );
}

/// SW-12, SW-31: what arrives comes at the speed of the link; what the own device holds follows the
/// shaper; a difference between the two is a warning. Without a shaper the ring bounds the device.
#[test]
fn the_link_counts_and_not_the_shaper() {
    let with = |speed: Option<Rate>, burst| {
        let mut ports = facts();
        for port in &mut ports {
            (port.speed, port.burst) = (speed, burst);
        }
        compiled("", PFC, &ports).unwrap()
    };
    let all = |compiled: &Compiled| compiled.headroom[0].as_ref().unwrap().made_of;
    let same = with(Some(Rate::from_gbps(100)), 1_250_000);
    assert_eq!(same.warnings, Vec::<String>::new());
    let shaped = with(Some(Rate::from_gbps(10)), 125_000);
    assert_eq!(all(&shaped).unread, all(&same).unread);
    assert_eq!(all(&shaped).response, all(&same).response);
    // At most the burst lies in the device, and in 20 µs it sends 250,000 bytes.
    assert_eq!(all(&shaped).own_backlog.bytes, 1_538);
    assert_eq!(all(&same).own_backlog.bytes, 312_500 + 1_538 - 250_000);
    assert_eq!(shaped.warnings.len(), 2, "{:?}", shaped.warnings);
    let wanted =
        "a: it is shaped to 10Gbps, and pauses and headroom count by the 100Gbps of its link";
    assert!(
        shaped.warnings[0].starts_with(wanted),
        "{:?}",
        shaped.warnings
    );
    let mut ports = facts();
    ports[0].speed = Some(Rate::from_gbps(10));
    let without_pauses: Qos = toml::from_str("").unwrap();
    let warnings = without_pauses.compile(&ports).unwrap().warnings;
    assert_eq!(warnings, Vec::<String>::new());
    let unshaped = with(None, 0);
    assert_eq!(unshaped.warnings, Vec::<String>::new());
    assert_eq!(
        all(&unshaped).own_backlog.bytes,
        4096 * 1_538 + 1_538 - 250_000
    );
    let mut unknown = facts();
    unknown[1].link = None;
    let error = compiled("", PFC, &unknown).unwrap_err();
    assert!(
        error.contains("b has no speed, and pauses are counted in bits of its link"),
        "{error}"
    );
}

/// SW-15: a link has the speed of its device, unless the configuration says another; without either
/// that of its shaper.
#[test]
fn the_speed_of_a_link_is_the_devices_or_what_is_said() {
    let facts = |text: &str, device: Option<Rate>| {
        let config: Config = toml::from_str(text).unwrap();
        let port = config
            .resolve_ports(&["eth0".to_owned()])
            .unwrap()
            .remove(0);
        let facts = config.facts(&port, device, 1500);
        (facts.speed, facts.link)
    };
    let (gigabit, ten) = (Some(Rate::from_gbps(1)), Some(Rate::from_gbps(10)));
    let plain = "ports = [\"eth0\"]\n";
    let with = |lines: &str| format!("{plain}[port_defaults]\n{lines}");
    assert_eq!(facts(plain, ten), (ten, ten));
    assert_eq!(facts(&with("speed = \"1Gbps\""), ten), (gigabit, ten));
    assert_eq!(facts(&with("speed = \"1Gbps\""), None), (gigabit, gigabit));
    assert_eq!(facts(&with("speed = \"unlimited\""), ten), (None, ten));
    let both = with("speed = \"1Gbps\"\nlink_speed = \"1Gbps\"");
    assert_eq!(facts(&both, ten), (gigabit, gigabit));
    let own = "[[port]]\nname = \"eth0\"\nspeed = \"1Gbps\"\nlink_speed = \"10Gbps\"\n";
    assert_eq!(facts(own, None), (gigabit, ten));
    let error = toml::from_str::<Config>(&with("link_speed = \"unlimited\"")).unwrap_err();
    assert!(error.to_string().contains("or device"), "{error}");
    let error = toml::from_str::<Config>(&with("link_speed = \"0bps\"")).unwrap_err();
    assert!(error.to_string().contains("carries nothing"), "{error}");
}
