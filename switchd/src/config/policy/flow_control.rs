//! `[qos.flow_control]` and `[qos.watchdog]`: what a port pauses, what it obeys, and when a pause
//! is a storm.

use crate::config::facts::PortFacts;
use crate::config::qos::{Mode, Qos};
use crate::config::rules::class_numbers;
use crate::limits::PRIORITIES;
use crate::tables::policy::{Classify, FlowControl, PortPolicy};
use crate::tables::watchdog::{Settings, SettingsError, StormLimit, Times};
use common::config::{Refusal, Refusals};
use common::time::Span;

impl Qos {
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
        let mut refusals = Refusals::default();
        refusals.require(
            of.quanta > 0,
            "qos.flow_control.quanta",
            "0 is not a pause: 1 to 65535",
        );
        refusals.keep(class_numbers("qos.flow_control.priorities", &of.priorities));
        refusals.require(
            of.mode == Mode::Off || facts.speed.is_some(),
            "qos.flow_control.mode",
            format_args!(
                "{} has no speed, and pauses are counted in its bits: give it one",
                facts.name
            ),
        );
        refusals.check()?;
        let lossless = (0..PRIORITIES)
            .filter(|it| port.groups[usize::from(maps.group_of_priority[*it])].is_lossless())
            .fold(0, |mask, priority| mask | 1 << priority);
        let priorities = match of.priorities.as_slice() {
            [] => lossless,
            some => some.iter().fold(0, |mask, priority| mask | 1 << priority),
        };
        refusals.require(
            of.mode == Mode::Off || lossless & !priorities == 0 || of.mode == Mode::Pause,
            "qos.flow_control.priorities",
            format_args!(
                "{:?} lack priorities of lossless groups: these are {:?}",
                of.priorities,
                (0..8)
                    .filter(|it| lossless & 1 << it != 0)
                    .collect::<Vec<_>>()
            ),
        );
        refusals.or(match of.mode {
            Mode::Off => FlowControl::Off,
            Mode::Pause => FlowControl::Pause {
                send: of.send && lossless != 0,
                obey: of.obey,
                quanta: of.quanta,
            },
            Mode::Pfc => FlowControl::Pfc {
                send: if of.send { priorities } else { 0 },
                obey: if of.obey { priorities } else { 0 },
                quanta: of.quanta,
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
            class_numbers(&key, &it.priorities)?;
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
