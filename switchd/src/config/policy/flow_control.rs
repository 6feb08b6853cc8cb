//! `[qos.flow_control]` and `[qos.watchdog]`: what a port pauses, what it obeys, and when a pause
//! is a storm.

use super::ports::concerns;
use crate::config::facts::PortFacts;
use crate::config::qos::{Directions, Mode, Qos};
use crate::config::rules::{class_numbers, some_class_numbers};
use crate::limits::PRIORITIES;
use crate::tables::policy::{Classify, FlowControl, PortPolicy};
use crate::tables::watchdog::{Settings, SettingsError, StormLimit, Times};
use common::config::{Refusal, Refusals};
use common::time::Span;

/// What a port does, and which keys say so.
struct Wanted {
    mode: Mode,
    send: bool,
    obey: bool,
    key: String,
}

impl Qos {
    /// Refuses keys that no port could follow.
    ///
    /// # Errors
    /// All of them.
    pub(super) fn check_flow_control(&self) -> Result<(), Refusals> {
        let of = &self.flow_control;
        let mut refusals = Refusals::default();
        refusals.require(
            of.quanta > 0,
            "qos.flow_control.quanta",
            "0 is not a pause: 1 to 65535",
        );
        refusals.keep(class_numbers("qos.flow_control.priorities", &of.priorities));
        for (place, port) in of.port.iter().enumerate() {
            let key = |name: &str| format!("qos.flow_control.port[{place}].{name}");
            refusals.require(
                port.pause == Directions::Off || port.pfc == Directions::Off,
                &key("pause"),
                format_args!(
                    "{:?} beside pfc = {:?}: a link has PAUSE or PFC, not both (IEEE 802.1Q clause 36.1); turn one of them off",
                    port.pause.name(),
                    port.pfc.name()
                ),
            );
        }
        refusals.or(())
    }

    /// What the port `name` is wanted to do: what the last section for it says, or what holds for
    /// all.
    fn wanted(&self, name: &str) -> Wanted {
        let of = &self.flow_control;
        let sections = of.port.iter().enumerate().rev();
        let own = sections
            .filter(|(_, it)| concerns(&it.ports, name))
            .map(|(place, it)| {
                let (mode, ways, key) = match (it.pfc, it.pause) {
                    (Directions::Off, Directions::Off) => (Mode::Off, Directions::Off, "pfc"),
                    (Directions::Off, pause) => (Mode::Pause, pause, "pause"),
                    (pfc, _) => (Mode::Pfc, pfc, "pfc"),
                };
                Wanted {
                    mode,
                    send: ways.send(),
                    obey: ways.obey(),
                    key: format!("qos.flow_control.port[{place}].{key}"),
                }
            })
            .next();
        own.unwrap_or_else(|| Wanted {
            mode: of.mode,
            send: of.send,
            obey: of.obey,
            key: "qos.flow_control.mode".to_owned(),
        })
    }

    /// What `port` pauses and obeys.
    ///
    /// # Errors
    /// The port has no speed, or priorities of lossless groups are left out.
    pub(super) fn flow_control(
        &self,
        maps: &Classify,
        port: &PortPolicy,
        facts: &PortFacts,
    ) -> Result<FlowControl, Refusals> {
        let of = &self.flow_control;
        let wanted = self.wanted(&facts.name);
        let mut refusals = Refusals::default();
        refusals.require(
            wanted.mode == Mode::Off || facts.link.is_some(),
            &wanted.key,
            format_args!(
                "{} has no speed, and pauses are counted in bits of its link: give it a link_speed",
                facts.name
            ),
        );
        refusals.check()?;
        let lossless = (0..PRIORITIES)
            .filter(|it| port.groups[usize::from(maps.group_of_priority[*it])].is_lossless())
            .fold(0, |mask, priority| mask | 1 << priority);
        let priorities = match of.priorities.as_slice() {
            [] => lossless,
            some => some
                .iter()
                .fold(0, |mask, priority| mask | 1 << (priority & 7)),
        };
        refusals.require(
            wanted.mode != Mode::Pfc || lossless & !priorities == 0,
            "qos.flow_control.priorities",
            format_args!(
                "{:?} lack priorities of lossless groups: these are {:?}",
                of.priorities,
                (0..8)
                    .filter(|it| lossless & 1 << it != 0)
                    .collect::<Vec<_>>()
            ),
        );
        let quanta = of.quanta;
        refusals.or(match wanted.mode {
            Mode::Off => FlowControl::Off,
            Mode::Pause => FlowControl::Pause {
                send: wanted.send && lossless != 0,
                obey: wanted.obey,
                quanta,
            },
            Mode::Pfc => FlowControl::Pfc {
                send: if wanted.send { priorities } else { 0 },
                obey: if wanted.obey { priorities } else { 0 },
                quanta,
            },
        })
    }

    /// The watchdog's settings; `None`: it is off.
    ///
    /// # Errors
    /// The first key whose value is impossible.
    pub(super) fn watchdog(&self) -> Result<Option<Settings>, Refusals> {
        let of = &self.watchdog;
        let refuse = |error: SettingsError| {
            Refusal::new(format!("qos.watchdog.{}", error.key()), error.to_string())
        };
        let mut settings = Settings {
            detection_time: Span::from_millis(of.detection_time_milliseconds),
            restoration_time: Span::from_millis(of.restoration_time_milliseconds),
            own: [None; PRIORITIES],
            poll_interval: Span::from_millis(of.poll_interval_milliseconds),
            action: of.action.parse().map_err(refuse)?,
            control: (of.storms > 0).then_some(StormLimit {
                storms: of.storms,
                window: Span::from_millis(of.window_milliseconds),
            }),
        };
        for (place, it) in of.priority.iter().enumerate() {
            let key = format!("qos.watchdog.priority[{place}].priorities");
            some_class_numbers(&key, &it.priorities)?;
            let span = |own: Option<u64>, common| own.map_or(common, Span::from_millis);
            let times = Times {
                detection: span(it.detection_time_milliseconds, settings.detection_time),
                recovery: span(it.restoration_time_milliseconds, settings.restoration_time),
            };
            for priority in &it.priorities {
                settings.own[usize::from(*priority)] = Some(times);
            }
        }
        settings.check().map_err(refuse)?;
        Ok(of.enabled.then_some(settings))
    }
}
