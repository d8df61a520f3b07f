//! The addresses that a pool must not allocate: parses and validates the annotation `exclude` (EXC-1).

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::addr;

/// Largest number of entries of a list (EXC-1). More would be a range of its own, and every edit of the pool pays for them.
pub const MAX_ENTRIES: usize = 1024;

/// Characters of an invalid entry that an error quotes.
const ENTRY_SHOWN: usize = 64;

/// A valid list of excluded addresses. Entries may be in any order, overlap, and lie outside the ranges of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// First and last address of each entry, in the order written.
    spans: Vec<(IpAddr, IpAddr)>,
}

/// Why a list of excluded addresses is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExcludeError {
    /// The first entry that is invalid.
    #[error("the entry {entry:?} {problem}")]
    Invalid {
        /// Its text, truncated to 64 characters.
        entry: String,
        /// What is wrong with it.
        problem: ExcludeProblem,
    },
    /// More than [`MAX_ENTRIES`].
    #[error(
        "the list has {count} entries; {MAX_ENTRIES} is the maximum, write adjacent addresses as one range"
    )]
    TooMany {
        /// Number of entries.
        count: usize,
    },
}

/// What is wrong with an entry, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExcludeProblem {
    /// Neither an address nor a range nor a subnet.
    #[error("is no address, range or subnet; write 10.0.0.5, 10.0.0.8-10.0.0.12 or 10.0.1.0/28")]
    NotAddresses,
    /// A range with an IPv4 and an IPv6 address.
    #[error("mixes IPv4 and IPv6; write two addresses of one family")]
    TwoFamilies,
    /// The first address of a range is after the last one.
    #[error("ends before it begins; write the lower address first")]
    Reversed,
}

impl Exclusions {
    /// Parses a comma-separated list of addresses, ranges `a-b` and subnets `address/prefix` (EXC-1). Blanks around entries and
    /// bounds do not matter, empty entries are ignored, host bits of a subnet are masked off, and an IPv4-mapped IPv6 address is
    /// the IPv4 address.
    ///
    /// # Errors
    /// There are too many entries, or the first one that is invalid.
    pub fn parse(text: &str) -> Result<Self, ExcludeError> {
        let entries = text.split(',').map(str::trim).filter(|it| !it.is_empty());
        let count = entries.clone().count();
        if count > MAX_ENTRIES {
            return Err(ExcludeError::TooMany { count });
        }
        let span = |entry: &str| {
            span(entry).map_err(|problem| ExcludeError::Invalid {
                entry: entry.chars().take(ENTRY_SHOWN).collect(),
                problem,
            })
        };
        let spans = entries.map(span).collect::<Result<_, _>>()?;
        Ok(Self { spans })
    }

    /// Whether it excludes nothing.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether an address is excluded.
    pub fn contains(&self, addr: IpAddr) -> bool {
        let is_in = |(first, last): &(IpAddr, IpAddr)| *first <= addr && addr <= *last;
        self.spans.iter().any(is_in)
    }

    /// First and last address of each entry, in the order written.
    pub fn spans(&self) -> &[(IpAddr, IpAddr)] {
        &self.spans
    }
}

/// First and last address of an entry.
fn span(entry: &str) -> Result<(IpAddr, IpAddr), ExcludeProblem> {
    if let Some((first, last)) = entry.split_once('-') {
        let (first, last) = (address(first)?, address(last)?);
        return if first.is_ipv4() != last.is_ipv4() {
            Err(ExcludeProblem::TwoFamilies)
        } else if first > last {
            Err(ExcludeProblem::Reversed)
        } else {
            Ok((first, last))
        };
    }
    if let Some((network, prefix)) = entry.split_once('/') {
        let network = address(network)?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|_| is_number);
        let subnet = prefix.and_then(|prefix| IpNetwork::new(network, prefix).ok());
        let subnet = subnet.ok_or(ExcludeProblem::NotAddresses)?;
        // Of an IPv4 subnet the highest address, of an IPv6 subnet the last one.
        return Ok((subnet.network(), subnet.broadcast()));
    }
    let single = address(entry)?;
    Ok((single, single))
}

fn address(text: &str) -> Result<IpAddr, ExcludeProblem> {
    let parsed = addr::parse(text.trim()).ok_or(ExcludeProblem::NotAddresses)?;
    Ok(parsed.to_canonical())
}

#[cfg(test)]
mod tests;
