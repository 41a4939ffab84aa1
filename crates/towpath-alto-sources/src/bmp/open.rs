//! Determines from the `OPEN` messages of a session (RFC 4271 §4.2) whether prefixes carry path identifiers (RFC 7911
//! §4).

use super::Rib;
use crate::bgp_update::{AddPath, BgpDecodeError, Family, Wire};

/// The `OPEN` messages carried by a peer up notification (RFC 7854 §4.10).
const WHAT: &str = "OPEN message";

/// Reads both `OPEN` messages, the router's own first, and returns the ADD-PATH state negotiated for routes in `rib`.
pub(super) fn negotiate(wire: &mut Wire<'_>, rib: Rib) -> Result<AddPath, BgpDecodeError> {
    let [sent, received] = [AddPathCapability::read(wire)?, AddPathCapability::read(wire)?];
    Ok(AddPath {
        ipv4: is_negotiated(sent.ipv4, received.ipv4, rib),
        ipv6: is_negotiated(sent.ipv6, received.ipv6, rib),
    })
}

/// Returns whether the routes received by the router carry path identifiers.
fn is_negotiated(sent: u8, received: u8, rib: Rib) -> bool {
    const RECEIVES: u8 = 1;
    const SENDS: u8 = 2;
    match rib {
        // There is no peer: both messages are synthesized to describe the encoding of the updates (RFC 9069 §5.2).
        Rib::Local => sent | received != 0,
        Rib::PrePolicy | Rib::PostPolicy => sent & RECEIVES != 0 && received & SENDS != 0,
    }
}

/// The Send/Receive field of a speaker's ADD-PATH capability; zero if absent.
#[derive(Default)]
struct AddPathCapability {
    ipv4: u8,
    ipv6: u8,
}

impl AddPathCapability {
    /// Reads one `OPEN` message.
    fn read(wire: &mut Wire<'_>) -> Result<Self, BgpDecodeError> {
        const HEADER_BYTES: usize = 19;
        wire.take(16, WHAT)?; // The marker.
        let length = usize::from(wire.u16(WHAT)?);
        wire.u8(WHAT)?; // The type.
        let length = length.checked_sub(HEADER_BYTES).ok_or("its OPEN message is shorter than a header")?;
        let mut open = Wire(wire.take(length, WHAT)?);
        open.take(9, WHAT)?; // Version, AS, hold time, BGP identifier.
        let mut offer = Self::default();
        offer.parameters(open)?;
        Ok(offer)
    }

    fn parameters(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        const CAPABILITIES: u8 = 2;
        /// A marker rather than a parameter type: the lengths that follow have two octets (RFC 9072 §2).
        const EXTENDED: u8 = 255;
        wire.u8(WHAT)?; // The total length, which equals the rest.
        let is_extended = wire.first() == Some(EXTENDED);
        if is_extended {
            wire.take(3, WHAT)?; // Including the extended total length.
        }
        while !wire.is_empty() {
            let kind = wire.u8(WHAT)?;
            let length = if is_extended { wire.u16(WHAT)? } else { wire.u8(WHAT)?.into() };
            let value = wire.take(length.into(), WHAT)?;
            if kind == CAPABILITIES {
                self.capabilities(Wire(value))?;
            }
        }
        Ok(())
    }

    fn capabilities(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        const ADD_PATH: u8 = 69;
        while !wire.is_empty() {
            let [code, length] = wire.array::<2>(WHAT)?;
            let value = wire.take(length.into(), WHAT)?;
            if code == ADD_PATH {
                self.add_path(Wire(value))?;
            }
        }
        Ok(())
    }

    fn add_path(&mut self, mut wire: Wire<'_>) -> Result<(), BgpDecodeError> {
        const UNICAST: u8 = 1;
        while !wire.is_empty() {
            let family = Family::of_afi(wire.u16(WHAT)?);
            match (family, wire.array::<2>(WHAT)?) {
                (Some(Family::Ipv4), [UNICAST, offer]) => self.ipv4 = offer,
                (Some(Family::Ipv6), [UNICAST, offer]) => self.ipv6 = offer,
                _ => {}
            }
        }
        Ok(())
    }
}
