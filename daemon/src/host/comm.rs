//! What a process is called, as the kernel keeps it.

use std::sync::Arc;

/// How many bytes of a name the kernel keeps.
const LENGTH: usize = 15;

/// The name of a process's first thread: that of its program, or one that it chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Comm([u8; LENGTH]);

impl Comm {
    /// As it stands in `/proc`.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut name = [0; LENGTH];
        for (kept, byte) in name.iter_mut().zip(bytes) {
            *kept = *byte;
        }
        Self(name)
    }

    /// It for people; none if it is empty. A container may put there what it likes, and a terminal may show it: what is not
    /// printable ASCII becomes a question mark.
    pub(super) fn text(self) -> Option<Arc<str>> {
        let bytes = self.0.into_iter().take_while(|byte| *byte != 0);
        let printable = |byte: u8| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' };
        let text: String = bytes.map(printable).collect();
        (!text.is_empty()).then(|| text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_without_anything_that_a_terminal_would_obey() {
        let shown = |name: &[u8]| Comm::new(name).text();
        assert_eq!(shown(b"pt_data_worker").as_deref(), Some("pt_data_worker"));
        assert_eq!(shown(b"a (b) c").as_deref(), Some("a (b) c"));
        assert_eq!(shown(b"\x1b[2J\xff\n\r\t\x7fx").as_deref(), Some("?[2J?????x"));
        assert_eq!(shown("g\u{202e}pu".as_bytes()).as_deref(), Some("g???pu"));
        assert_eq!(shown(b"kworker/u16:3-events_unbound").as_deref(), Some("kworker/u16:3-e"));
        assert_eq!(shown(b""), None);
        assert_eq!(shown(b"\0after"), None);
    }
}
