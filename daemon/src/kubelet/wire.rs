//! Messages as they are on the wire (Protocol Buffers), read where they lie.
//!
//! Generated code builds all of a message before anybody can count what is in it, and of empty pods eight million fit
//! into an answer of 16 MiB. This builds nothing: what is kept is bounded by who keeps it.

/// What is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no message of PodResources v1")]
pub(super) struct Malformed;

/// The strings, bytes and messages in `message`, each with the number of its field, in their order. Numbers and fields
/// of no known kind are passed over. Ends after the first error.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

/// See [`fields`].
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            match self.field() {
                Ok(None) => {}
                Ok(Some(field)) => return Some(Ok(field)),
                Err(error) => {
                    self.rest = &[];
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<'a> Fields<'a> {
    /// The next field, if it has a length.
    fn field(&mut self) -> Result<Option<(u64, &'a [u8])>, Malformed> {
        let key = self.varint()?;
        let number = key >> 3;
        if number == 0 {
            return Err(Malformed);
        }
        match key & 7 {
            0 => self.varint().map(|_| None),
            1 => self.take(8).map(|_| None),
            2 => {
                let length = self.varint()?;
                Ok(Some((number, self.take(length)?)))
            }
            5 => self.take(4).map(|_| None),
            // Groups, which proto3 does not have.
            _ => Err(Malformed),
        }
    }

    /// An integer: seven bits a byte, the least first, and all but the last with their highest bit set.
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            value |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits).ok_or(Malformed)?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let within = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = within.ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(message: &[u8]) -> Result<Vec<(u64, &[u8])>, Malformed> {
        fields(message).collect()
    }

    #[test]
    fn only_fields_with_a_length_are_given_and_the_others_passed_over() {
        let message = [
            &[0x0a, 2, b'h', b'i'][..],
            &[0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x19, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x25, 1, 2, 3, 4],
            &[0xfa, 1, 0],
        ];
        assert_eq!(all(&message.concat()), Ok(vec![(1, &b"hi"[..]), (31, &b""[..])]));
        assert_eq!(all(b""), Ok(vec![]));
    }

    #[test]
    fn what_is_cut_or_no_field_is_an_error_and_the_end() {
        let eleven = [&[0x10][..], &[0x80; 10], &[0]].concat();
        let beyond = [0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        let long = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let others: [&[u8]; 8] =
            [&[0x0a], &[0x0a, 2, 1], &[0x02, 0], &[0x0b], &[0x0c], &[0x19, 1], &[0x25, 1], &[0x80]];
        for wrong in others.into_iter().chain([&eleven[..], &beyond, &long]) {
            assert_eq!(all(wrong), Err(Malformed), "{wrong:?}");
            assert!(fields(wrong).count() <= 1, "{wrong:?}");
        }
    }
}
