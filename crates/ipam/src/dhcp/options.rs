//! The options of a message, read and written with `dhcproto`. Owns all contact with that crate, and the errors of
//! options.
//!
//! Of `dhcproto` only the iterator over options, the encoder of one option and the codes are used. Its decoders of whole
//! messages are not made for hostile input: they have debug assertions on lengths, `chaddr()` panics if `hlen` is over
//! 16, the magic cookie is not compared, the last of several equal options wins, and option 52 is not followed. Its
//! message type also draws its transaction id from a global random number generator.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dhcproto::v4::borrowed::DhcpOptionIterator;
use dhcproto::v4::{DhcpOption, Encodable, Encoder, OptionCode};
use thiserror::Error;

/// Most bytes of one option after concatenation; the longest that is read here is the text of a NAK.
const LONGEST: usize = 1024;

/// Where options begin in a message: after the header and the magic cookie.
pub(super) const START: usize = 240;
const SNAME: core::ops::Range<usize> = 44..108;
const FILE: core::ops::Range<usize> = 108..236;

/// The options that a client reads.
const READ: [OptionCode; 10] = [
    OptionCode::SubnetMask,
    OptionCode::Router,
    OptionCode::AddressLeaseTime,
    OptionCode::OptionOverload,
    OptionCode::MessageType,
    OptionCode::ServerIdentifier,
    OptionCode::Message,
    OptionCode::Renewal,
    OptionCode::Rebinding,
    OptionCode::ClientIdentifier,
];

/// What is wrong with the options of a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    /// An option has a length that its type does not allow. Also one that is present twice: its values are concatenated
    /// (RFC 3396, 7).
    #[error("option {code} has {len} bytes, which its type does not allow")]
    Length {
        /// The option.
        code: u8,
        /// Its length in bytes, after concatenation.
        len: usize,
    },
    /// Option 52 is not 1, 2 or 3.
    #[error("option 52 (overload) is {0}; it must be 1 (file), 2 (sname) or 3 (both have options)")]
    Overload(u8),
}

/// The values of the options that a client reads, each concatenated.
#[derive(Debug, Default)]
pub(super) struct Options(BTreeMap<u8, Vec<u8>>);

impl Options {
    /// Reads the options of a message: those after the cookie, then those in the fields `file` and `sname` as option 52
    /// says. Equal ones are concatenated in this order, adjacent or not (RFC 3396, 5). An option that is cut off ends its
    /// field.
    pub(super) fn read(message: &[u8]) -> Result<Self, OptionError> {
        let mut options = Self::default();
        options.add(message.get(START..).unwrap_or_default());
        let overload = match options.array(OptionCode::OptionOverload)? {
            None => 0,
            Some([overload @ 1..=3]) => overload,
            Some([other]) => return Err(OptionError::Overload(other)),
        };
        for (bit, field) in [(1, FILE), (2, SNAME)] {
            if overload & bit != 0 {
                options.add(message.get(field).unwrap_or_default());
            }
        }
        Ok(options)
    }

    fn add(&mut self, field: &[u8]) {
        for option in DhcpOptionIterator::new(field) {
            if READ.contains(&option.code()) {
                let value = self.0.entry(option.code().into()).or_default();
                let room = LONGEST.saturating_sub(value.len());
                value.extend(option.data().iter().take(room));
            }
        }
    }

    /// The value of an option, if it is present.
    pub(super) fn bytes(&self, code: OptionCode) -> Option<&[u8]> {
        self.0.get(&u8::from(code)).map(Vec::as_slice)
    }

    /// The value of an option that has exactly N bytes.
    pub(super) fn array<const N: usize>(
        &self,
        code: OptionCode,
    ) -> Result<Option<[u8; N]>, OptionError> {
        let Some(bytes) = self.bytes(code) else {
            return Ok(None);
        };
        bytes
            .try_into()
            .map(Some)
            .map_err(|_| length(code, bytes.len()))
    }

    /// The value of an option that is an address.
    pub(super) fn address(&self, code: OptionCode) -> Result<Option<Ipv4Addr>, OptionError> {
        Ok(self.array::<4>(code)?.map(Ipv4Addr::from))
    }

    /// The value of an option that is a number of seconds.
    pub(super) fn seconds(&self, code: OptionCode) -> Result<Option<u32>, OptionError> {
        Ok(self.array(code)?.map(u32::from_be_bytes))
    }

    /// The first address of an option that is a list of them.
    pub(super) fn first_address(&self, code: OptionCode) -> Result<Option<Ipv4Addr>, OptionError> {
        let Some(bytes) = self.bytes(code) else {
            return Ok(None);
        };
        let (addresses, rest) = bytes.as_chunks::<4>();
        match addresses.first() {
            Some(first) if rest.is_empty() => Ok(Some((*first).into())),
            _ => Err(length(code, bytes.len())),
        }
    }
}

fn length(code: OptionCode, len: usize) -> OptionError {
    OptionError::Length {
        code: code.into(),
        len,
    }
}

/// The bytes of these options in this order, with the option that ends the list.
pub(super) fn write(options: &[DhcpOption]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes);
    for option in options.iter().chain([&DhcpOption::End]) {
        // Fails only for domain names and when the number of bytes overflows.
        let written = option.encode(&mut encoder);
        debug_assert!(written.is_ok(), "{option:?}: {written:?}");
    }
    bytes
}
