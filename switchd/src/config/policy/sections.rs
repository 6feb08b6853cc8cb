//! Which table of `[[qos.group]]` or `[[qos.queue]]` a group or a queue of a port has its settings
//! from, so that what is wrong with it can be told where it stands.

use crate::limits::CLASSES;

/// The tables that made the groups and queues of all ports, by their place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sections {
    ports: Vec<PortSections>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PortSections {
    groups: [Option<usize>; CLASSES],
    queues: [Option<usize>; CLASSES],
}

impl Sections {
    /// Of `ports` ports for which no table was read yet.
    pub(super) fn new(ports: usize) -> Self {
        Self {
            ports: vec![PortSections::default(); ports],
        }
    }

    /// The `groups` of a port are as table `place` says.
    pub(super) fn group_is_from(&mut self, port: usize, groups: &[u8], place: usize) {
        fill(&mut self.ports[port].groups, groups, place);
    }

    /// The `queues` of a port are as table `place` says.
    pub(super) fn queue_is_from(&mut self, port: usize, queues: &[u8], place: usize) {
        fill(&mut self.ports[port].queues, queues, place);
    }

    /// The key `name` of a group of a port.
    pub(super) fn group(&self, port: usize, group: usize, name: &str) -> String {
        match self.ports[port].groups[group] {
            Some(place) => format!("qos.group[{place}].{name}"),
            None => format!("qos.group.{name}"),
        }
    }

    /// The key `name` of a queue of a port; of the default for queues that no table names.
    pub(super) fn queue(&self, port: usize, queue: usize, name: &str) -> String {
        match self.ports[port].queues[queue] {
            Some(place) => format!("qos.queue[{place}].{name}"),
            None => "qos.queue_depth_bytes".to_owned(),
        }
    }
}

fn fill(places: &mut [Option<usize>; CLASSES], numbers: &[u8], place: usize) {
    for number in numbers {
        if let Some(found) = places.get_mut(usize::from(*number)) {
            *found = Some(place);
        }
    }
}
