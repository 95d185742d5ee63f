use super::*;

fn drivers(maps: &[u8]) -> Vec<Mapped> {
    read_maps(maps, |mapped| is_driver(mapped.path.as_os_str().as_bytes())).unwrap()
}

#[test]
fn only_the_driver_library_is_one_whatever_its_version() {
    for path in [
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/libcuda.so",
        "/run/nvidia/driver/usr/lib64/libcuda.so.555.58.02",
        "/usr/local/cuda/compat/libcuda.so.1.1 (deleted)",
    ] {
        assert!(is_driver(path.as_bytes()), "{path}");
    }
    for path in [
        "/usr/lib/libcudart.so.12",
        "/usr/lib/libcuda.sox",
        "/libcuda.so.d/file",
        "/usr/lib/libcudadebugger.so.1",
        "",
    ] {
        assert!(!is_driver(path.as_bytes()), "{path}");
    }
}

#[test]
fn a_library_that_is_mapped_in_pieces_is_one() {
    let maps = "\
55d0c0000000-55d0c0001000 r-xp 00000000 fd:01 11 /usr/bin/python3.11\n\
7f0000000000-7f0000001000 r--p 00000000 fd:01 42 /usr/lib/libcuda.so.555.58.02\n\
7f0000001000-7f0000002000 r-xp 00001000 fd:01 42 /usr/lib/libcuda.so.555.58.02\n\
007f00100000-007f00101000 r-xp 00001000 fd:01 43 /opt/my cuda/libcuda.so.1 (deleted)\n\
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]\n";
    let found = drivers(maps.as_bytes());
    let mapped = |path: &str, inode, range: &str| Mapped { path: path.into(), inode, range: range.into() };
    assert_eq!(
        found,
        [
            mapped("/usr/lib/libcuda.so.555.58.02", 42, "7f0000000000-7f0000001000"),
            mapped("/opt/my cuda/libcuda.so.1", 43, "7f00100000-7f00101000"),
        ]
    );
}

#[test]
fn a_map_of_endless_lines_ends() {
    let mut maps = vec![b'/'; 100_000];
    maps.extend_from_slice(b"\n7f00-7f01 r-xp 0 fd:01 42 /libcuda.so.1\n");
    assert_eq!(drivers(maps.as_slice()).len(), 1, "what follows is read");
    let many: Vec<String> = (0..100).map(|n| format!("7f00-7f01 r-xp 0 fd:01 {n} /libcuda.so.1\n")).collect();
    let many = many.concat();
    assert_eq!(drivers(many.as_bytes()).len(), LIBRARIES);
}

#[test]
fn a_process_that_maps_a_library_is_found_and_the_library_opened_as_it_sees_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libcuda.so.1");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let Some(libc) = libc.into_iter().find(|path| path.contains("libc.so.6")) else {
        eprintln!("skipped: this program maps no libc.so.6");
        return;
    };
    std::fs::copy(libc, &path).unwrap();
    // The loader maps it for a program that waits.
    let mut child = std::process::Command::new("sleep").arg("60").env("LD_PRELOAD", &path).spawn().unwrap();
    let processes = Processes::new(Path::new("/proc"));
    let found = (0..200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        processes.libraries(child.id()).ok()?.into_iter().find(|mapped| mapped.path == path)
    });
    let mapped = found.expect("the library is mapped");
    assert!(processes.lives(child.id()));
    let away = directory.path().join("away");
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(processes.libraries(child.id()).unwrap(), [], "by its name it is none any more");
    assert!(processes.keeps(child.id(), &mapped), "but it is the one that was seen");
    std::fs::rename(&away, &path).unwrap();
    assert!(!processes.keeps(std::process::id(), &mapped));
    let opened = processes.open(child.id(), &mapped).unwrap();
    let stat = rustix::fs::stat(&path).unwrap();
    assert_eq!(opened.identity.inode, stat.st_ino);

    // A copy is another file; the same file by another name is the same.
    let (copy, link) = (directory.path().join("copy"), directory.path().join("link"));
    std::fs::copy(&path, &copy).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    let again = |path: &Path| {
        let mapped = Mapped {
            path: path.to_owned(),
            inode: rustix::fs::stat(path).unwrap().st_ino,
            range: "0-1".into(),
        };
        processes.open(child.id(), &mapped)
    };
    assert!(!again(&copy).unwrap().identity.is_same(&opened.identity));
    let linked = again(&link).unwrap().identity;
    // The link changed the file's change time, so it is opened anew too.
    assert!(linked.is_same(&again(&path).unwrap().identity));

    // A path that now leads elsewhere is not taken for the mapped file.
    std::fs::rename(&copy, &path).unwrap();
    let replaced = Mapped { range: "0-1".into(), ..mapped };
    assert_eq!(processes.open(child.id(), &replaced).unwrap_err(), OpenError::Replaced);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(processes.open(child.id(), &replaced).unwrap_err(), OpenError::Replaced);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!processes.lives(child.id()));
    assert_eq!(processes.open(child.id(), &replaced).unwrap_err(), OpenError::Gone);
}

#[test]
fn an_overlay_and_the_file_below_are_one_file() {
    let below = Identity { device: Some(7), inode: 42, size: 5, modified: (1, 2), changed: (3, 4) };
    let above = Identity { device: None, ..below };
    let layered = Identity { device: None, inode: 0x2_0000_002a, ..below };
    assert!(above.is_same(&below) && below.is_same(&layered) && above.is_same(&layered));
    assert!(!below.is_same(&Identity { device: Some(8), ..below }), "a snapshot of its file system");
    assert!(!above.is_same(&Identity { changed: (3, 5), ..above }), "a copy");
}
