//! What this kernel's version says about what works.

use std::io::{BufRead, BufReader};

/// Major and minor number of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub u32, pub u32);

impl Version {
    pub(crate) fn of_kernel() -> Option<Self> {
        Self::parse(&rustix::system::uname().release().to_string_lossy())
    }

    fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// Why the ends of calls may not be probed, if they may not.
///
/// From Linux 6.11 the end of a probed function makes a system call of its own, which a process's filter of system
/// calls knows nothing of: the process is killed, or its function fails. Filters let it pass since 6.14; which older
/// kernels got that mended is not told by anything, so it is not relied on.
pub(crate) fn returns_are_unsafe() -> Option<String> {
    let version = Version::of_kernel()?;
    let affected = (Version(6, 11)..Version(6, 14)).contains(&version) && has_symbol("__x64_sys_uretprobe");
    affected.then(|| {
        format!(
            "the ends of CUDA calls are not probed, since Linux {}.{} would kill processes under seccomp: waits \
             have no length; Linux 6.14 or later mends that",
            version.0, version.1
        )
    })
}

/// Whether the kernel has a symbol; unknown counts as yes.
fn has_symbol(name: &str) -> bool {
    let Ok(symbols) = std::fs::File::open("/proc/kallsyms") else { return true };
    let mut lines = BufReader::new(symbols).split(b'\n');
    lines.any(|line| line.map_or(true, |line| line.ends_with(name.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_versions() {
        assert_eq!(Version::parse("6.12.117+deb13-amd64"), Some(Version(6, 12)));
        assert_eq!(Version::parse("5.10.0-46-cloud"), Some(Version(5, 10)));
        assert_eq!(Version::parse("6.18-rc1"), Some(Version(6, 18)));
        assert_eq!(Version::parse("linux"), None);
    }

    #[test]
    fn symbols_of_the_kernel_are_found_by_their_whole_name() {
        if std::fs::metadata("/proc/kallsyms").is_err() {
            return;
        }
        assert!(has_symbol(" vfs_read"));
        assert!(!has_symbol(" no_such_symbol_of_any_kernel"));
    }
}
