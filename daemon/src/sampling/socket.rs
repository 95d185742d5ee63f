//! What a socket is, by the kernel's tables of them.

use std::collections::BTreeSet;

use warpmeter_core::probe::Doing;

use super::file::number;

/// State of a socket that listens.
const LISTENS: &str = "0A";

/// What a thread does that waits for the socket with an inode, by the text of a table.
type Look = fn(&[u8], u64) -> Option<Doing>;

/// The tables of a process's network, and how to find a socket in each.
pub(super) const TABLES: [(&str, Look); 3] = [("net/tcp", inet), ("net/tcp6", inet), ("net/unix", local)];

/// A connection by a port on which somebody listens was accepted.
fn inet(table: &[u8], inode: u64) -> Option<Doing> {
    let text = String::from_utf8_lossy(table);
    let mut listening = BTreeSet::new();
    let mut own = None;
    for line in text.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace();
        let Some(port) = fields.nth(1).and_then(|address| address.rsplit_once(':')).map(|(_, port)| port)
        else {
            continue;
        };
        if fields.nth(1) == Some(LISTENS) {
            listening.insert(port);
        }
        if fields.nth(5).and_then(|field| number(field.as_bytes())) == Some(inode) {
            own = Some(port);
        }
    }
    own.map(|port| if listening.contains(port) { Doing::Request } else { Doing::Network })
}

/// A local socket leads to another process.
fn local(table: &[u8], inode: u64) -> Option<Doing> {
    let text = String::from_utf8_lossy(table);
    let mut inodes = text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(6));
    inodes.any(|field| number(field.as_bytes()) == Some(inode)).then_some(Doing::Lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
        0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n   \
        1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1\n   \
        2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 20 4 30 10 -1\n";

    #[test]
    fn a_connection_by_a_port_that_is_listened_on_was_accepted() {
        let found = [11, 12, 13, 14].map(|inode| inet(TABLE, inode));
        assert_eq!(found, [Some(Doing::Request), Some(Doing::Request), Some(Doing::Network), None]);
        assert_eq!(inet(b"nonsense\nmore: of it", 11), None);
    }
}
