//! kube-vip's annotations on a load balancer of VM type, which are copied to its Service (KVA-1, KVA-2). Pure.
//!
//! An annotation of ours on the Service, the `Note`, says which of them were copied and from whom, so that they are taken off when
//! the load balancer has them no longer, also by a later process. Those that somebody else has set on the Service are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use harvester_lb_api::keys;
use harvester_lb_api::meta::annotation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::dhcp::serving::Handed;
use crate::spec_annotations::shown;
use crate::status::{self, ExtraCondition};

/// The annotations that are copied (KVA-1).
pub const COPIED: [&str; 5] = [
    keys::ANNOTATION_KUBE_VIP_INTERFACE,
    "kube-vip.io/loadbalancerHostname",
    "kube-vip.io/forcePerServiceElection",
    "kube-vip.io/flush-conntrack",
    "kube-vip.io/dhcp-broadcast",
];
/// What the keys of kube-vip's annotations begin with.
pub const PREFIX: &str = "kube-vip.io/";

/// Whether this is the key of an annotation for kube-vip that is not copied: it means nothing on a load balancer (KVA-1).
pub fn is_ignored(key: &str) -> bool {
    key.starts_with(PREFIX) && !COPIED.contains(&key)
}

/// The interfaces of the nodes that a load balancer may name (KVA-2). Who may write a load balancer is no administrator of the hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces(Arc<BTreeSet<String>>);

impl Interfaces {
    /// Whether a load balancer may name this one.
    pub fn allow(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().cloned()
    }
}

impl FromIterator<String> for Interfaces {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(Arc::new(names.into_iter().collect()))
    }
}

/// A comma list; blanks and empty parts do not matter. A name that Linux accepts for no interface is an error.
impl FromStr for Interfaces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(|name| {
                is_interface_name(name).then(|| name.to_owned()).ok_or_else(|| {
                    format!(
                        "{name:?} is no name of an interface: at most {LONGEST_INTERFACE} bytes, without blanks, `/` and `:`"
                    )
                })
            })
            .collect()
    }
}

/// Longest name of an interface: `IFNAMSIZ` of Linux, less the final zero.
const LONGEST_INTERFACE: usize = 15;

/// Whether Linux accepts this name for an interface (`dev_valid_name`).
pub fn is_interface_name(name: &str) -> bool {
    let is_wrong = |c: char| c.is_whitespace() || matches!(c, '/' | ':' | '\0');
    !matches!(name, "" | "." | "..") && name.len() <= LONGEST_INTERFACE && !name.contains(is_wrong)
}

/// For messages.
impl fmt::Display for Interfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none is allowed");
        }
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        write!(f, "allowed are {}", names.join(", "))
    }
}

/// The annotations that a load balancer asks to be copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Uid of the load balancer.
    uid: String,
    values: BTreeMap<String, String>,
    /// An interface that it names and may not, and those that it may name.
    refused: Option<(String, Interfaces)>,
    /// What kube-vip's DHCP client is to ask for.
    handed: Option<Handed>,
}

impl Wanted {
    /// From the metadata of a load balancer.
    pub fn of(meta: &ObjectMeta, allowed: &Interfaces) -> Self {
        let present = COPIED.into_iter().filter_map(|key| {
            let value = annotation(meta, key)?;
            Some((key.to_owned(), value.to_owned()))
        });
        let mut values: BTreeMap<String, String> = present.collect();
        let refused = interface(meta).filter(|name| !allowed.allow(name));
        if refused.is_some() {
            values.remove(keys::ANNOTATION_KUBE_VIP_INTERFACE);
        }
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            values,
            refused: refused.map(|name| (name.to_owned(), allowed.clone())),
            handed: None,
        }
    }

    /// The same, with what kube-vip's DHCP client is to ask for unless the Service says so already (DHC-6).
    #[must_use]
    pub const fn handing(mut self, handed: Option<Handed>) -> Self {
        self.handed = handed;
        self
    }

    /// The condition that its interface is not allowed (KVA-2).
    pub fn condition(&self) -> ExtraCondition {
        let message = self
            .refused
            .as_ref()
            .map(|(name, allowed)| refusal(name, allowed));
        ExtraCondition::new(status::INTERFACE_NOT_ALLOWED, message)
    }
}

/// The interface that a load balancer names.
fn interface(meta: &ObjectMeta) -> Option<&str> {
    annotation(meta, keys::ANNOTATION_KUBE_VIP_INTERFACE).filter(|name| !name.is_empty())
}

fn refusal(name: &str, allowed: &Interfaces) -> String {
    format!(
        "annotation {}: {:?} is not an interface that load balancers may name; {allowed}; it is not passed on to kube-vip",
        keys::ANNOTATION_KUBE_VIP_INTERFACE,
        shown(name),
    )
}

/// What admission warns of: kube-vip's annotations that are not passed on to it (KVA-1), and an interface that is not allowed (KVA-2).
pub fn warnings<'a>(
    meta: &'a ObjectMeta,
    allowed: &Interfaces,
) -> impl Iterator<Item = String> + use<'a> {
    let refused = interface(meta).filter(|name| !allowed.allow(name));
    let refused = refused.map(|name| refusal(name, allowed));
    let annotations = meta.annotations.iter().flat_map(BTreeMap::keys);
    let ignored = annotations.filter(|key| is_ignored(key)).map(|key| {
        format!(
            "annotation {}: ignored on a LoadBalancer; those that are passed on to kube-vip are {}",
            shown(key),
            COPIED.join(", ")
        )
    });
    refused.into_iter().chain(ignored)
}

/// Whose annotations a Service has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those of its load balancer; of several that share an address, of the primary.
    Own(Wanted),
    /// The primary is gone. Its annotations stay until those of the load balancer that has its record now, this one, are edited
    /// (SHR-5).
    Heir(Wanted),
}

impl Source {
    /// Those of the Service of this name, whose address several load balancers share; `holder`: the one that has its record; `is_new`:
    /// the Service is to be made anew, and those of a primary that is gone went with it.
    pub fn of_group(name: &str, holder: &ObjectMeta, allowed: &Interfaces, is_new: bool) -> Self {
        let wanted = Wanted::of(holder, allowed);
        if is_new || holder.name.as_deref() == Some(name) {
            Self::Own(wanted)
        } else {
            Self::Heir(wanted)
        }
    }
}

/// What an annotation of ours on the Service remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// Uid of the load balancer whose annotations were copied.
    from: String,
    /// The copied keys.
    keys: BTreeSet<String>,
    /// The load balancer that took over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heir: Option<Heir>,
}

/// What a load balancer that took over asked for then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Heir {
    uid: String,
    /// As [`remembered`].
    values: BTreeMap<String, String>,
}

/// Longest value that is remembered as a whole, in bytes: the longest host name. The annotations of the Service, which may be as long as an
/// object's may be together, have to leave room for the note.
const LONGEST_REMEMBERED: usize = 253;

/// The values of a load balancer, to see later whether they were edited.
fn remembered(wanted: &Wanted) -> BTreeMap<String, String> {
    let short = |value: &String| match value.len() {
        0..=LONGEST_REMEMBERED => value.clone(),
        length => {
            let end = value.floor_char_boundary(LONGEST_REMEMBERED);
            format!("{}... ({length} bytes)", &value[..end])
        }
    };
    let values = wanted.values.iter();
    values
        .map(|(key, value)| (key.clone(), short(value)))
        .collect()
}

/// Brings the annotations of a Service up to date.
pub fn copy(service: &mut ObjectMeta, source: &Source) {
    if let Source::Own(Wanted {
        handed: Some(handed),
        ..
    }) = source
    {
        let annotations = service.annotations.get_or_insert_default();
        for (key, value) in [
            (
                keys::ANNOTATION_KUBE_VIP_REQUESTED_IP,
                handed.address.to_string(),
            ),
            (
                keys::ANNOTATION_KUBE_VIP_HARDWARE,
                handed.hardware.to_string(),
            ),
        ] {
            annotations.entry(key.to_owned()).or_insert(value);
        }
    }
    let note = annotation(service, keys::ANNOTATION_COPIED);
    if note.is_none() && matches!(source, Source::Own(wanted) if wanted.values.is_empty()) {
        return;
    }
    // What cannot be read names no key that may be removed.
    let note: Option<Note> = note.and_then(|text| serde_json::from_str(text).ok());
    let heir = match source {
        Source::Own(wanted) => {
            replace(service, note.as_ref(), wanted);
            return forget_empty(service, wanted);
        }
        Source::Heir(wanted) => wanted,
    };
    let mut note = note.unwrap_or_default();
    match &note.heir {
        Some(before) if before.uid == heir.uid && before.values == remembered(heir) => {}
        Some(before) if before.uid == heir.uid => replace(service, Some(&note), heir),
        // Its own were edited since: they are its own from then on.
        None if note.from == heir.uid => replace(service, Some(&note), heir),
        _ => {
            note.heir = Some(Heir {
                uid: heir.uid.clone(),
                values: remembered(heir),
            });
            write(service, &note);
        }
    }
}

/// Replaces the copies by those of another load balancer, or by newer ones.
fn replace(service: &mut ObjectMeta, before: Option<&Note>, wanted: &Wanted) {
    let copied = before.map(|note| &note.keys);
    if let Some(annotations) = &mut service.annotations {
        // A note that somebody has edited removes nothing else.
        annotations.retain(|key, _| {
            !(COPIED.contains(&&**key) && copied.is_some_and(|keys| keys.contains(key)))
        });
    }
    let annotations = service.annotations.get_or_insert_default();
    annotations.extend(wanted.values.clone());
    write(
        service,
        &Note {
            from: wanted.uid.clone(),
            keys: wanted.values.keys().cloned().collect(),
            heir: None,
        },
    );
}

/// Removes the note of a load balancer that asks for nothing.
fn forget_empty(service: &mut ObjectMeta, wanted: &Wanted) {
    if wanted.values.is_empty()
        && let Some(annotations) = &mut service.annotations
    {
        annotations.remove(keys::ANNOTATION_COPIED);
        if annotations.is_empty() {
            service.annotations = None;
        }
    }
}

fn write(service: &mut ObjectMeta, note: &Note) {
    let Ok(text) = serde_json::to_string(note) else {
        return;
    };
    let annotations = service.annotations.get_or_insert_default();
    annotations.insert(keys::ANNOTATION_COPIED.to_owned(), text);
}

#[cfg(test)]
mod tests;
