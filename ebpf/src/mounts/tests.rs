use super::*;

/// A directory of a process whose root is `root` and whose mounts a file says.
struct Pretended(tempfile::TempDir);

impl Pretended {
    fn new(root: &Path, own: &str, host: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("1")).unwrap();
        std::fs::create_dir(at("7")).unwrap();
        std::os::unix::fs::symlink(root, at("7/root")).unwrap();
        std::fs::write(at("7/mountinfo"), own).unwrap();
        std::fs::write(at("1/mountinfo"), host).unwrap();
        Self(directory)
    }

    fn walk(&self, path: &str) -> Result<OwnedFd, Unreached> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let process = rustix::fs::openat(CWD, self.0.path().join("7"), flags, Mode::empty()).unwrap();
        Way { process: process.as_fd(), proc: self.0.path() }.walk(Path::new(path))
    }
}

/// A directory with a library, and the number of the mount that it is on.
fn place() -> (tempfile::TempDir, u64) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("lib")).unwrap();
    std::fs::write(directory.path().join("lib/libcuda.so.1"), b"code").unwrap();
    std::os::unix::fs::symlink("lib", directory.path().join("link")).unwrap();
    let file = rustix::fs::openat(CWD, directory.path(), ASK_NOTHING, Mode::empty()).unwrap();
    (directory, mount_of(&file).unwrap())
}

fn line(id: u64, device: &str, kind: &str) -> String {
    format!("{id} 1 {device} / /some\\040where rw,relatime shared:1 - {kind} source rw\n")
}

#[test]
fn a_file_is_reached_only_by_file_systems_that_answer() {
    let (directory, id) = place();
    let kinds = [
        ("ext4", "", true),
        ("tmpfs", "", true),
        ("fuse", "0:99", false),
        ("fuse.sshfs", "0:99", false),
        ("fuseblk", "0:99", false),
        // These may wait for others: only what the host has mounted too.
        ("overlay", "", false),
        ("overlay", "0:98", false),
        ("overlay", "0:99", true),
        ("nfs4", "", false),
        ("nfs4", "0:99", true),
        ("whatever", "", false),
    ];
    for (kind, hosts, reached) in kinds {
        let hosts = line(1, hosts, kind);
        let process = Pretended::new(directory.path(), &line(id, "0:99", kind), &hosts);
        let found = process.walk("/lib/libcuda.so.1");
        if reached {
            let mut text = String::new();
            File::from(reopen(&found.unwrap()).unwrap()).read_to_string(&mut text).unwrap();
            assert_eq!(text, "code", "{kind}");
        } else {
            assert_eq!(found.unwrap_err(), Unreached::Silent(Some(kind.into())));
        }
    }
}

#[test]
fn a_mount_that_no_list_shows_is_not_asked() {
    let (directory, id) = place();
    let process = Pretended::new(directory.path(), &line(id + 1, "0:99", "ext4"), "");
    assert_eq!(process.walk("/lib/libcuda.so.1").unwrap_err(), Unreached::Silent(None));
    let process = Pretended::new(directory.path(), "", &line(id, "8:1", "ext4"));
    assert!(process.walk("/lib/libcuda.so.1").is_ok(), "the host's own list shows it");
}

#[test]
fn a_path_is_walked_as_it_is_written_and_nowhere_else() {
    let (directory, id) = place();
    let process = Pretended::new(directory.path(), &line(id, "8:1", "ext4"), "");
    assert!(process.walk("/lib/libcuda.so.1").is_ok());
    for path in ["/link/libcuda.so.1", "/lib/../lib/libcuda.so.1", "/lib/none", "/lib/libcuda.so.1/x"] {
        assert!(
            matches!(process.walk(path), Err(Unreached::Refused(Errno::NOENT | Errno::NOTDIR))),
            "{path}"
        );
    }
}

#[test]
fn no_list_of_mounts_makes_the_reader_panic() {
    let text = line(36, "98:0", "ext3");
    assert_eq!(Mounts::parse(text.as_bytes()).0.len(), 1);
    for length in 0..text.len() {
        drop(Mounts::parse(&text.as_bytes()[..length]));
    }
    let own = Mounts::of(CWD, Path::new("/proc/self/mountinfo"));
    assert!(!own.0.is_empty());
}
