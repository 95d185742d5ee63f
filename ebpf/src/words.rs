//! What processes call things, as it may stand in a log: names are theirs, and may have any bytes.

use std::path::Path;

use warpmeter_core::identity::Scope;

/// The most letters of a name that are shown: paths have up to 4,096.
const SHOWN: usize = 200;

/// A path without anything that a terminal or a reader of logs takes for more than letters.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    let start = text.chars().count().saturating_sub(SHOWN);
    let end: String = text.chars().skip(start).collect();
    let mark = if start > 0 { "…" } else { "" };
    format!("{mark}{}", end.escape_debug())
}

/// A process and its workload.
pub(crate) fn whose(pid: u32, scope: Option<&Scope>) -> String {
    match scope {
        Some(scope) => format!("process {pid} ({})", workload(scope)),
        None => format!("process {pid}"),
    }
}

/// A workload.
pub(crate) fn workload(scope: &Scope) -> String {
    let (kind, name) = match scope {
        Scope::Pod { uid, .. } => ("pod", uid.as_str()),
        Scope::Container(id) => ("container", id.as_str()),
        Scope::SlurmJob(id) => ("job", id.as_ref()),
        Scope::Unit(name) => ("unit", name.as_ref()),
        Scope::Host => return "the host's".into(),
    };
    format!("{kind} {}", shown(Path::new(name)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn no_name_leaves_its_place_in_a_line() {
        for byte in 0..=255_u8 {
            let path = [b"/lib/", &[byte][..], b"/libcuda.so.1"].concat();
            let shown = shown(Path::new(OsStr::from_bytes(&path)));
            assert!(!shown.chars().any(char::is_control), "{byte}");
            assert!(shown.ends_with("/libcuda.so.1"));
            let quotes = shown.matches('"').count();
            assert_eq!(quotes, shown.matches("\\\"").count(), "{shown}");
        }
        assert!(!shown(Path::new("/\u{202e}/\u{2028}")).contains(['\u{202e}', '\u{2028}']));
        assert_eq!(shown(Path::new("/usr/lib/größe/libcuda.so.1")), "/usr/lib/größe/libcuda.so.1");
        assert!(shown(Path::new(&"a/".repeat(3000))).chars().count() <= SHOWN + 1);
        assert!(!whose(7, Some(&Scope::Unit("a\u{1b}[2J".into()))).contains('\u{1b}'));
    }
}
