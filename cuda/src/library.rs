//! Which file is the driver's library.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The library's file name: the interface's, not the driver version's.
const NAME: &str = "libnvidia-ml.so.1";

/// Where the library is looked for unless told otherwise: beside a driver container first, since a host that runs
/// one may carry an older library of its own.
pub const DEFAULT_LIBRARIES: [&str; 12] = [
    // GPU operator.
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    // GKE.
    "/home/kubernetes/bin/nvidia/lib64",
    "/usr/local/nvidia/lib64",
    // A container that the NVIDIA runtime prepared, or the host itself.
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/opt/nvidia/lib64",
    "/usr/lib/wsl/lib",
];

/// The outcome of looking for the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Files that can be opened, in order of preference.
    pub found: Vec<PathBuf>,
    /// Candidates that cannot, in their order.
    pub rejected: Vec<Rejected>,
}

/// A candidate that is not the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub reason: String,
}

/// Looks at every candidate, a directory or a file, without loading any. No candidates stand for
/// [`DEFAULT_LIBRARIES`].
pub fn find_library(candidates: &[PathBuf]) -> Search {
    find(candidates, &DEFAULT_LIBRARIES, &[NAME])
}

/// The same for a library with any of these names. No candidates stand for `defaults`.
pub(crate) fn find(candidates: &[PathBuf], defaults: &[&str], names: &[&str]) -> Search {
    let usual: Vec<PathBuf>;
    let candidates = if candidates.is_empty() {
        usual = defaults.iter().map(PathBuf::from).collect();
        &usual
    } else {
        candidates
    };
    let mut search = Search { found: Vec::new(), rejected: Vec::new() };
    for candidate in candidates {
        let directory = candidate.is_dir() || candidate.extension().is_none();
        let paths = if directory {
            names.iter().map(|name| candidate.join(name)).collect()
        } else {
            vec![candidate.clone()]
        };
        for path in paths {
            match examine(&path) {
                Ok(()) if search.found.contains(&path) => {}
                Ok(()) => search.found.push(path),
                Err(reason) => search.rejected.push(Rejected { path, reason }),
            }
        }
    }
    search
}

fn examine(path: &Path) -> Result<(), String> {
    if !path.is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    // The toolkit's stand-ins for linking have the real names and answer nothing.
    if path.components().any(|part| part.as_os_str() == "stubs") {
        return Err("a stub for linking, not a driver".to_owned());
    }
    let mut head = [0; 20];
    let mut file = File::open(path).map_err(|error| match fs::symlink_metadata(path) {
        Ok(link) if link.is_symlink() => format!("a link that leads nowhere: {error}"),
        _ => error.to_string(),
    })?;
    file.read_exact(&mut head).map_err(|error| format!("not a library: {error}"))?;
    let machine = u16::from_le_bytes([head[18], head[19]]);
    match (&head[..4], machine) {
        (b"\x7fELF", machine) if machine == MACHINE => Ok(()),
        (b"\x7fELF", machine) => Err(format!("built for another processor (ELF machine {machine})")),
        _ => Err("not a library".to_owned()),
    }
}

/// This processor's number in ELF.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Whether this process still has an older file of this path mapped, though the library was closed: some
/// libraries cannot be unloaded, and opening the path would then give the old one again.
pub(crate) fn is_outdated(path: &Path) -> bool {
    let Ok(real) = fs::canonicalize(path) else { return false };
    let inode = fs::metadata(&real).map(|metadata| metadata.ino()).ok();
    fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps_outdated(&maps, &real, inode))
}

/// `address permissions offset device inode path`, with ` (deleted)` after the path of a file that is gone.
fn maps_outdated(maps: &str, path: &Path, inode: Option<u64>) -> bool {
    maps.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(4);
        let (Some(mapped), Some(file)) = (fields.next(), fields.next()) else { return false };
        let deleted = fields.next() == Some("(deleted)");
        Path::new(file) == path && (deleted || inode.is_some_and(|inode| mapped != inode.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16) -> Vec<u8> {
        let mut file = b"\x7fELF".to_vec();
        file.resize(18, 0);
        file.extend(machine.to_le_bytes());
        file
    }

    #[test]
    fn the_first_usable_file_wins_and_the_others_say_why_not() {
        let root = tempfile::tempdir().unwrap();
        let dir = |name: &str, content: &[u8]| {
            let dir = root.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(NAME), content).unwrap();
            dir
        };
        let other = dir("other", &elf(if MACHINE == 62 { 183 } else { 62 }));
        let text = dir("text", b"INPUT ( libnvidia-ml.so )  /* linker script */");
        let empty = dir("empty", b"");
        let stub = dir("stubs", &elf(MACHINE));
        let good = dir("good", &elf(MACHINE));
        let missing = root.path().join("missing");
        let link = root.path().join("link");
        fs::create_dir(&link).unwrap();
        std::os::unix::fs::symlink("nowhere", link.join(NAME)).unwrap();

        let candidates = [&other, &text, &empty, &stub, &missing, &link, &good, &good].map(Clone::clone);
        let search = find_library(&candidates);
        assert_eq!(search.found, [good.join(NAME)]);
        let reasons: Vec<&str> =
            search.rejected.iter().map(|r| r.reason.split(':').next().unwrap()).collect();
        assert!(reasons[0].starts_with("built for another processor"));
        assert_eq!(reasons[1..4], ["not a library", "not a library", "a stub for linking, not a driver"]);
        assert!(reasons[4].starts_with("No such file"));
        assert_eq!(reasons[5], "a link that leads nowhere");
        assert_eq!(find_library(&[good.join(NAME)]).found, [good.join(NAME)], "a file is a candidate too");
        assert_eq!(find_library(&["lib".into()]).rejected[0].reason, "not an absolute path");
    }

    #[test]
    fn a_mapping_of_a_replaced_file_is_outdated() {
        let path = Path::new("/usr/lib64/libnvidia-ml.so.570.1");
        let line = |inode: u64, tail: &str| {
            format!("7f00-7f01 r-xp 00000000 08:01 {inode}   {}{tail}\n", path.display())
        };
        assert!(!maps_outdated(&line(5, ""), path, Some(5)));
        assert!(maps_outdated(&line(5, ""), path, Some(6)));
        assert!(maps_outdated(&line(5, " (deleted)"), path, Some(5)));
        assert!(!maps_outdated("7f00-7f01 rw-p 00000000 00:00 0\n", path, Some(5)));
    }
}
