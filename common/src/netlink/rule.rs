//! Policy rules: which tables the kernel asks for a packet, and in which order.

use super::types::Table;
use ipnet::IpNet;
use std::fmt;

/// A policy rule (`ip rule`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// Its place: the smallest is asked first.
    pub priority: u32,
    /// For IPv6 and not for IPv4.
    pub is_v6: bool,
    /// The table that it asks.
    pub table: u32,
    /// What it does (FR_ACT_* of linux/fib_rules.h): 1 asks the table.
    pub action: u8,
    /// It is for packets that do not match.
    pub is_inverted: bool,
    /// Only packets from here.
    pub source: Option<IpNet>,
    /// Only packets to here.
    pub destination: Option<IpNet>,
    /// Only packets with this TOS; zero for all.
    pub tos: u8,
    /// Only packets with this mark.
    pub mark: Option<u32>,
    /// Only packets that arrived by the interface of this name.
    pub input: Option<String>,
    /// Only packets of sockets that are bound to the interface of this name: none that is
    /// forwarded.
    pub output: Option<String>,
    /// Asks the table of the VRF to which the packet's interface belongs.
    pub is_of_vrf: bool,
    /// It depends on something else: ports, protocols, users, a mask of marks, or what is newer
    /// than this program.
    pub has_more: bool,
    /// What else the kernel tells of it, as it does: rules that differ in nothing but that are
    /// several ones.
    pub rest: Vec<u8>,
}

impl Rule {
    const ASK_TABLE: u8 = 1;

    /// Whether it asks its table about every packet.
    pub fn is_for_all(&self) -> bool {
        let asks = Self {
            priority: self.priority,
            is_v6: self.is_v6,
            table: self.table,
            action: Self::ASK_TABLE,
            rest: self.rest.clone(),
            ..Self::default()
        };
        *self == asks
    }
}

/// As `ip rule` writes it, as far as it is known.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.priority)?;
        if self.is_inverted {
            f.write_str(" not")?;
        }
        match self.source {
            Some(source) => write!(f, " from {}", shown(source))?,
            None => f.write_str(" from all")?,
        }
        if let Some(destination) = self.destination {
            write!(f, " to {}", shown(destination))?;
        }
        if self.tos != 0 {
            write!(f, " tos {:#x}", self.tos)?;
        }
        if let Some(mark) = self.mark {
            write!(f, " fwmark {mark:#x}")?;
        }
        if let Some(input) = &self.input {
            write!(f, " iif {input}")?;
        }
        if let Some(output) = &self.output {
            write!(f, " oif {output}")?;
        }
        if self.has_more {
            f.write_str(" …")?;
        }
        match (self.is_of_vrf, self.action, self.table) {
            (true, ..) => f.write_str(" lookup [l3mdev-table]"),
            (_, Self::ASK_TABLE, Table::LOCAL) => f.write_str(" lookup local"),
            (_, Self::ASK_TABLE, Table::MAIN) => f.write_str(" lookup main"),
            (_, Self::ASK_TABLE, Table::DEFAULT) => f.write_str(" lookup default"),
            (_, Self::ASK_TABLE, table) => write!(f, " lookup {table}"),
            (_, action, _) => write!(f, " action {action}"),
        }
    }
}

/// A prefix of one address is written as that.
fn shown(prefix: IpNet) -> String {
    if prefix.prefix_len() == prefix.max_prefix_len() {
        prefix.addr().to_string()
    } else {
        prefix.to_string()
    }
}
