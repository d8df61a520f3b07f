//! Types that the other modules share: owners, uids, times and records. A record is the ledger's
//! copy of an IPAllocation.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_object::Version;

/// Microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub i64);

impl Micros {
    /// Earlier than every real time.
    pub const MIN: Self = Self(i64::MIN);
}

/// Name of a pool; shared, so that records need no copy of it.
pub type PoolName = Arc<str>;

/// Namespace and name of a load balancer, stored as the text `namespace/name` that the maps of a
/// pool's status use.
///
/// The API server admits no `/` in either part, so the text is unambiguous.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// The id of `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// Parses `namespace/name`; both parts must be non-empty, without a further `/` and without
    /// whitespace.
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        let sound = |part: &str| {
            !part.is_empty() && !part.contains(|c: char| c == '/' || c.is_whitespace())
        };
        (sound(namespace) && sound(name)).then(|| Self(text.into()))
    }

    /// The part before the `/`.
    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The part after the `/`.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    /// The text `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The uid of an object. Any text is valid; a UUID is stored as its 16 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(UidRepr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum UidRepr {
    /// Only for texts that these bytes reproduce exactly.
    Uuid([u8; 16]),
    Text(Arc<str>),
}

impl Uid {
    /// The uid written as `text`.
    pub fn new(text: &str) -> Self {
        Self(parse_uuid(text).map_or_else(|| UidRepr::Text(text.into()), UidRepr::Uuid))
    }

    /// Whether it is empty: the uid of an owner imported from a pool's map, of which only the name
    /// is known.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, UidRepr::Text(text) if text.is_empty())
    }

    /// The bytes of a lower-case UUID; `None` for any other text.
    pub(crate) const fn uuid(&self) -> Option<[u8; 16]> {
        match &self.0 {
            UidRepr::Uuid(bytes) => Some(*bytes),
            UidRepr::Text(_) => None,
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidRepr::Text(text) => f.write_str(text),
            UidRepr::Uuid(bytes) => {
                for (index, byte) in bytes.iter().enumerate() {
                    let dash = if matches!(index, 4 | 6 | 8 | 10) {
                        "-"
                    } else {
                        ""
                    };
                    write!(f, "{dash}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The bytes of a lower-case UUID in 8-4-4-4-12 form.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    let mut at = 0;
    for (index, byte) in bytes.iter_mut().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = digit(text[at])? << 4 | digit(text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

/// A load balancer, identified by name and uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Namespace and name.
    pub id: OwnerId,
    /// Distinguishes successive objects of the same name.
    pub uid: Uid,
}

impl Owner {
    /// The load balancer `namespace/name` with this uid.
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            id: OwnerId::new(namespace, name),
            uid: Uid::new(uid),
        }
    }
}

/// Whether the address of a record is held, or the record is only history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The owner holds the address.
    Bound,
    /// History: free, but the same owner gets it back (ALC-2).
    Released,
}

/// The spec of an IPAllocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSpec {
    /// The address.
    pub addr: IpAddr,
    /// The pool it was allocated from.
    pub pool: PoolName,
    /// The load balancer that holds it, or held it last.
    pub owner: Owner,
    /// Bound or Released.
    pub phase: Phase,
    /// Time of the allocation. The ledger makes these strictly increasing, so they order the
    /// allocations.
    pub bound_at: Micros,
    /// Time of the release.
    pub released_at: Option<Micros>,
    /// The name of the group whose address it is, if the owner is not the load balancer of that name (SHR-5). Bound records
    /// only.
    pub group: Option<Arc<str>>,
}

impl RecordSpec {
    /// The id of the load balancer whose address it is or was at first, and of the Service that shows it: that of the group, else
    /// the owner's.
    pub fn address_of(&self) -> OwnerId {
        match &self.group {
            Some(group) if self.phase == Phase::Bound => {
                OwnerId::new(self.owner.id.namespace(), group)
            }
            _ => self.owner.id.clone(),
        }
    }
}

/// An IPAllocation. As input of the ledger: the stored spec and its version. As output: the spec to
/// write, and the version that is the precondition of the write (IPA-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The spec.
    pub spec: RecordSpec,
    /// The `resourceVersion`.
    pub version: Version,
}

#[cfg(test)]
mod tests;
