//! The configuration in force, and what `[qos]` was compiled to.

use super::api::ConfigReport;
use crate::config::{
    Change, Compiled, Config, DerivedValue, Planned, PortFacts, RING_DEFAULT, Source, check_live,
};
use common::config::{Loaded, Refusal, Refusals};
use std::collections::BTreeMap;

/// The configuration in force.
#[derive(Debug)]
pub struct ActiveConfig {
    /// Where the configuration is read again.
    pub source: Source,
    /// The one in force.
    pub config: Config,
    /// The same as TOML, with the place that set each key.
    shown: String,
    /// What follows from it for the ports.
    values: Vec<DerivedValue>,
    /// What the ports were when they were opened; `None`: no port has this number.
    facts: Vec<Option<PortFacts>>,
    /// What ports became that `[qos]` does not fit, and why not: it is compiled for what they were.
    misfits: BTreeMap<usize, (PortFacts, String)>,
    /// What computed headroom is made of, by port.
    pub headroom: Vec<Option<Planned>>,
    /// What is possible but unwise in it.
    pub warnings: Vec<String>,
    /// Packets that memory was made for at the start.
    packets: u32,
    /// The longest receive ring that a port may get whose rings nobody set.
    pub longest_ring: u32,
}

impl ActiveConfig {
    /// The configuration at the start: `loaded`, which was read from `source` and compiled for
    /// `facts`.
    pub fn new(
        source: Source,
        loaded: Loaded<Config>,
        facts: Vec<PortFacts>,
        compiled: &Compiled,
    ) -> Self {
        let facts: Vec<_> = facts.into_iter().map(Some).collect();
        let shown = shown(&loaded);
        let config = loaded.settings;
        Self {
            source,
            packets: config.buffer_packets(),
            headroom: compiled.headroom.clone(),
            warnings: warnings(&config, &facts, compiled),
            values: values(&config, &facts, compiled),
            config,
            shown,
            facts,
            misfits: BTreeMap::new(),
            longest_ring: RING_DEFAULT,
        }
    }

    /// The same with receive rings of up to so many descriptors where nobody set them.
    #[must_use]
    pub fn with_longest_ring(mut self, longest: u32) -> Self {
        self.longest_ring = longest;
        self
    }

    /// The same with so many port numbers that no port has yet.
    #[must_use]
    pub fn with_spare(mut self, spare: usize) -> Self {
        let count = self.facts.len() + spare;
        self.facts.resize(count, None);
        self.headroom.resize(count, None);
        self
    }

    /// What is in force: TOML with the place that set each key, and the numbers of the ports that
    /// follow from it.
    pub fn report(&self) -> ConfigReport {
        ConfigReport {
            toml: self.shown.clone(),
            derived: self.values.clone(),
        }
    }

    /// What `[qos]` was compiled for at port `number`, if a port has it.
    pub fn facts(&self, number: usize) -> Option<&PortFacts> {
        self.facts.get(number)?.as_ref()
    }

    /// What `[qos]` is compiled to when port `number` is what `facts` say; `None`: it was that
    /// before.
    ///
    /// # Errors
    /// It does not fit together with this port.
    pub fn prepare_port(
        &self,
        number: usize,
        facts: &PortFacts,
    ) -> Result<Option<Compiled>, Refusals> {
        if self.facts[number].as_ref() == Some(facts) {
            return Ok(None);
        }
        let mut all = self.facts.clone();
        all[number] = Some(facts.clone());
        compile(&self.config, &all).map(Some)
    }

    /// Port `number` is this from now on, and `compiled` is in force. Returns the warnings that did
    /// not hold before.
    pub fn take_port(
        &mut self,
        number: usize,
        facts: PortFacts,
        compiled: &Compiled,
    ) -> Vec<String> {
        self.facts[number] = Some(facts);
        self.misfits.remove(&number);
        self.headroom.clone_from(&compiled.headroom);
        self.warn(compiled)
    }

    /// What `[qos]` is compiled to without port `number`; `None`: no port has it.
    ///
    /// # Errors
    /// It is impossible without this port: a section names no other.
    pub fn prepare_without(&self, number: usize) -> Result<Option<Compiled>, Refusals> {
        let mut all = self.facts.clone();
        if all[number].take().is_none() {
            return Ok(None);
        }
        compile(&self.config, &all).map(Some)
    }

    /// No port is `number` from now on, and `compiled` is in force.
    pub fn leave_port(&mut self, number: usize, compiled: &Compiled) {
        self.facts[number] = None;
        self.misfits.remove(&number);
        self.headroom.clone_from(&compiled.headroom);
        self.warn(compiled);
    }

    /// `[qos]` does not fit what port `number` is now, and stays as it is.
    pub fn note_misfit(&mut self, number: usize, facts: PortFacts, why: String) {
        self.misfits.insert(number, (facts, why));
    }

    /// Port `number` is gone, or is what `[qos]` was compiled for.
    pub fn forget_misfit(&mut self, number: usize) {
        self.misfits.remove(&number);
    }

    /// Ports that `[qos]` does not fit, with what they are now.
    pub fn misfits(&self) -> Vec<(usize, PortFacts)> {
        let all = self.misfits.iter();
        all.map(|(number, (facts, _))| (*number, facts.clone()))
            .collect()
    }

    /// A sentence about each port that `[qos]` does not fit.
    pub fn misfit_problems(&self) -> impl Iterator<Item = String> {
        self.misfits.values().map(|(facts, why)| {
            format!(
                "{}: [qos] does not fit its speed and MTU of now, and is in force for those before: {why}",
                facts.name
            )
        })
    }

    fn warn(&mut self, compiled: &Compiled) -> Vec<String> {
        self.values = values(&self.config, &self.facts, compiled);
        let now = warnings(&self.config, &self.facts, compiled);
        let before = std::mem::replace(&mut self.warnings, now);
        let is_new = |it: &&String| !before.contains(it);
        self.warnings.iter().filter(is_new).cloned().collect()
    }

    /// What `next` is compiled to, and how it differs, if it can be put in force while the switch
    /// runs.
    ///
    /// # Errors
    /// The keys that cannot change, or whose values are impossible.
    pub fn prepare(&self, next: &Config) -> Result<(Vec<Change>, Compiled), Refusals> {
        let changes = self.config.changes_to(next);
        check_live(&changes)?;
        if next.buffer_packets() > self.packets {
            let reason = format!(
                "{} bytes are {} cells, but the memory was made for {} when the switch started: restart it",
                next.qos.buffer.size_bytes,
                next.buffer_packets(),
                self.packets
            );
            return Err(Refusal::new("qos.buffer.size_bytes", reason).into());
        }
        Ok((changes, compile(next, &self.facts)?))
    }

    /// `next` is in force from now on, and was compiled to this. Returns the warnings that did not
    /// hold before.
    pub fn replace(&mut self, next: Loaded<Config>, compiled: &Compiled) -> Vec<String> {
        self.shown = shown(&next);
        self.config = next.settings;
        self.headroom.clone_from(&compiled.headroom);
        self.warn(compiled)
    }
}

fn shown(loaded: &Loaded<Config>) -> String {
    // A configuration that was read can be written.
    loaded.show().unwrap_or_default()
}

/// What follows from it for the ports that there are.
fn values(config: &Config, facts: &[Option<PortFacts>], compiled: &Compiled) -> Vec<DerivedValue> {
    let ports = facts.iter().zip(&compiled.headroom);
    let ports = ports.filter_map(|(facts, made_of)| Some((facts.as_ref()?, made_of.as_ref())));
    config.derived_of(ports)
}

/// What is possible but unwise at these ports.
fn warnings(config: &Config, facts: &[Option<PortFacts>], compiled: &Compiled) -> Vec<String> {
    let ports: Vec<PortFacts> = facts.iter().flatten().cloned().collect();
    let mut all = config.pattern_warnings(&ports);
    all.extend(config.ecmp.dlb.warnings(&ports));
    all.extend_from_slice(&compiled.warnings);
    if !config.flows.collector.is_empty() && !config.flows.enabled {
        let text = "flows.collector gets nothing, for flows.enabled is false";
        all.push(text.to_owned());
    }
    all
}

fn compile(config: &Config, facts: &[Option<PortFacts>]) -> Result<Compiled, Refusals> {
    let ports: Vec<PortFacts> = facts.iter().flatten().cloned().collect();
    let compiled = config.qos.compile(&ports)?;
    Ok(compiled.spread(facts.iter().map(Option::is_some)))
}
