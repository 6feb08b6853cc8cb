//! What `net.ipv4.conf` says of interfaces, as messages tell it.

use super::attribute::{DecodeError, attributes, u8_at, u32_at};
use super::types::SettingsChange;

/// AF_INET.
const AF_INET: u8 = 2;

/// IFLA_INET_CONF of AF_INET in IFLA_AF_SPEC: the settings of `net.ipv4.conf`, four bytes each, of
/// which only this is told nowhere else.
pub(super) fn accepts_local(families: &[u8]) -> Result<bool, DecodeError> {
    const ACCEPT_LOCAL: usize = 23;
    for family in attributes(families) {
        let family = family?;
        if family.kind != u16::from(AF_INET) {
            continue;
        }
        for attribute in attributes(family.value) {
            let attribute = attribute?;
            if attribute.kind == 1 {
                // Older kernels may have fewer.
                return Ok(u32_at(attribute.value, 4 * (ACCEPT_LOCAL - 1)).is_ok_and(|it| it != 0));
            }
        }
    }
    Ok(false)
}

/// struct netconfmsg and NETCONFA_* (linux/netconf.h). Those of new interfaces are of no interest.
pub(super) fn settings(body: &[u8]) -> Result<Option<SettingsChange>, DecodeError> {
    const DEFAULT: u32 = u32::MAX - 1;
    let rest = body.get(4..).ok_or(DecodeError::Short)?;
    if u8_at(body, 0)? != AF_INET {
        return Ok(None);
    }
    let mut ifindex = None;
    let mut settings = SettingsChange::default();
    for attribute in attributes(rest) {
        let attribute = attribute?;
        match attribute.kind {
            1 => ifindex = Some(attribute.u32()?),
            2 => settings.forwards = Some(attribute.u32()? != 0),
            3 => settings.rp_filter = Some(attribute.u32()?),
            6 => settings.ignores_linkdown = Some(attribute.u32()? != 0),
            _ => {}
        }
    }
    settings.ifindex = ifindex.ok_or(DecodeError::Missing(1))?;
    Ok((settings.ifindex != DEFAULT).then_some(settings))
}
