//! Texts in shared memory.

use std::fmt;

/// A short text of fixed capacity.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// As much of `text` as fits before the closing zero byte.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
            *to = from;
        }
        Self { bytes }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|&b| b == 0).unwrap_or(N);
        std::str::from_utf8(self.bytes.get(..len).unwrap_or_default()).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl<const N: usize> PartialEq<str> for Text<N> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}
