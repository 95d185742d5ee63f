//! The bearer token that a request must carry.

use std::fmt;

use hyper::header::{AUTHORIZATION, HeaderMap};
use subtle::ConstantTimeEq;

/// The token of a file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    /// The right token.
    Right,
    /// Another one, or several.
    Wrong,
    /// None.
    Nothing,
}

impl Token {
    /// The token of a file's content, without the white space around it.
    pub(super) fn of(content: &[u8]) -> Result<Self, String> {
        let token = content.trim_ascii();
        if token.is_empty() {
            return Err("it is empty; put the token into it, alone on one line".into());
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(
                "it holds more than a token; put one line of printable ASCII without spaces into it".into()
            );
        }
        Ok(Self(token.to_owned()))
    }

    /// Compares a request's token in a time that does not depend on how much of it is right.
    pub(super) fn brought(&self, headers: &HeaderMap) -> Brought {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return if headers.contains_key(AUTHORIZATION) { Brought::Wrong } else { Brought::Nothing };
        };
        let right = bearer(value.as_bytes()).is_some_and(|token| bool::from(token.ct_eq(&self.0)));
        if right { Brought::Right } else { Brought::Wrong }
    }
}

/// What follows the scheme, which is written in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn brought(values: &[&'static str]) -> Brought {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        Token::of(b"\n s3cret-Token \r\n").unwrap().brought(&headers)
    }

    #[test]
    fn only_the_whole_token_in_the_bearer_scheme_is_right() {
        for right in ["Bearer s3cret-Token", "bearer s3cret-Token", "BEARER  s3cret-Token"] {
            assert_eq!(brought(&[right]), Brought::Right, "{right}");
        }
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer s3cret-Toke",
            "Bearer s3cret-Token2",
            "Bearer S3cret-Token",
            "Bearers3cret-Token",
            "Basic s3cret-Token",
            "s3cret-Token",
        ] {
            assert_eq!(brought(&[wrong]), Brought::Wrong, "{wrong}");
        }
        assert_eq!(brought(&[]), Brought::Nothing);
        assert_eq!(brought(&["Bearer no", "Bearer s3cret-Token"]), Brought::Wrong, "which is meant?");
    }

    #[test]
    fn a_file_without_one_token_is_refused_and_nothing_shows_it() {
        for content in ["", " \n", "two tokens", "two\ntokens", "caf\u{e9}", "nul\0"] {
            assert!(Token::of(content.as_bytes()).is_err(), "{content:?}");
        }
        assert!(!format!("{:?}", Token::of(b"s3cret").unwrap()).contains("s3cret"));
    }
}
