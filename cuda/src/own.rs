//! What this process itself uses.

use std::fs;

use warpmeter_core::fact::Own;

use crate::clock;

/// CPU time and resident memory until now; nothing if `/proc` is not there.
pub(crate) fn usage() -> Option<Own> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(Own { cpu: clock::own_cpu(), resident: resident(&status)? })
}

/// The line `VmRSS:      1234 kB`, in bytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_in_kibibytes() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    5120 kB\n"), Some(5 << 20));
        assert_eq!(resident("Name:\tx\n"), None);
    }

    #[test]
    fn a_process_uses_something() {
        let own = usage().unwrap();
        assert!(own.cpu > 0 && own.resident > 0);
    }
}
