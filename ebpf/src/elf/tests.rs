use super::*;

/// The code of three functions: the driver's trampoline, one behind `endbr64`, one that begins with arithmetic.
const CODE: [&[u8]; 3] = [
    &[0x81, 0x3d, 1, 2, 3, 4, 0x00, 0xba, 0x1c, 0x32, 0x74, 0x0c, 0xff, 0x25, 0, 0, 0, 0],
    &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0x5d, 0xc3, 0x90, 0x90, 0x90, 0x90],
    &[0x48, 0x31, 0xc0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90],
];
const NAMES: [&str; 5] = ["cuInit", "cuLaunchKernel", "cuCtxSynchronize", "cuMissing", "cuAlias"];
const ADDRESS: u64 = 0x40_1000;

/// A library that exports the functions, one of them by two names, and lacks another.
pub(super) fn library() -> Vec<u8> {
    let mut code = Vec::new();
    let mut starts = Vec::new();
    for function in CODE {
        starts.push(code.len() as u64);
        code.extend_from_slice(function);
        code.resize(code.len().next_multiple_of(32), 0x90);
    }
    let mut names = vec![0_u8];
    let mut symbols = vec![0_u8; 24];
    for (at, name) in NAMES.iter().enumerate() {
        let (section, value) = match (*name, starts.get(at)) {
            ("cuMissing", _) => (0_u16, 0),
            ("cuAlias", _) => (1, ADDRESS + starts[0]),
            (_, start) => (1, ADDRESS + start.unwrap()),
        };
        symbols.extend_from_slice(&u32::try_from(names.len()).unwrap().to_le_bytes());
        symbols.extend_from_slice(&[0x12, 0]);
        symbols.extend_from_slice(&section.to_le_bytes());
        symbols.extend_from_slice(&value.to_le_bytes());
        symbols.extend_from_slice(&16_u64.to_le_bytes());
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    let code_at = 64 + 56;
    let symbols_at = code_at + code.len() as u64;
    let names_at = symbols_at + symbols.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let words = |file: &mut Vec<u8>, words: &[u16]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    words(&mut file, &[3, machine, 1, 0]);
    for long in [0, 64, sections_at] {
        file.extend_from_slice(&long.to_le_bytes());
    }
    words(&mut file, &[0, 0, 64, 56, 1, 64, 4, 0]);
    // The one segment: code.
    file.extend_from_slice(&1_u32.to_le_bytes());
    file.extend_from_slice(&5_u32.to_le_bytes());
    for long in [code_at, ADDRESS, ADDRESS, code.len() as u64, code.len() as u64, 4096] {
        file.extend_from_slice(&long.to_le_bytes());
    }
    file.extend_from_slice(&code);
    file.extend_from_slice(&symbols);
    file.extend_from_slice(&names);
    file.resize(usize::try_from(sections_at).unwrap(), 0);
    let mut section = |kind: u32, offset: u64, size: u64, link: u32, entry: u64| {
        file.extend_from_slice(&[0; 4]);
        file.extend_from_slice(&kind.to_le_bytes());
        for long in [0, 0, offset, size] {
            file.extend_from_slice(&long.to_le_bytes());
        }
        file.extend_from_slice(&link.to_le_bytes());
        file.extend_from_slice(&[0; 4]);
        for long in [8, entry] {
            file.extend_from_slice(&long.to_le_bytes());
        }
    };
    section(0, 0, 0, 0, 0);
    section(1, code_at, code.len() as u64, 0, 0);
    section(11, symbols_at, symbols.len() as u64, 3, 24);
    section(3, names_at, names.len() as u64, 0, 0);
    file
}

fn all(name: &[u8]) -> Option<usize> {
    NAMES.iter().position(|wanted| wanted.as_bytes() == name)
}

#[test]
fn each_function_is_found_once_with_the_place_where_a_probe_is_cheap() {
    let library = library();
    let found = functions(library.as_slice(), all).unwrap();
    let places: Vec<_> = found.iter().map(|function| (NAMES[function.wanted], function.place)).collect();
    if cfg!(target_arch = "x86_64") {
        let wanted = [
            ("cuInit", Place::Trampoline),
            ("cuLaunchKernel", Place::Landing),
            ("cuCtxSynchronize", Place::Entry),
        ];
        assert_eq!(places, wanted, "the alias and the function that is missing give nothing more");
        let first = found[0];
        assert_eq!((first.start, first.probe()), (120, 130));
    }
}

#[test]
fn a_real_library_gives_its_functions() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut files = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let Some(path) = files.find(|path| path.contains("libc.so.6")) else {
        eprintln!("skipped: this program maps no libc.so.6");
        return;
    };
    let library = std::fs::read(path).unwrap();
    let found = functions(library.as_slice(), |name| (name == b"getpid").then_some(())).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn the_bytes_decide_where_a_probe_goes() {
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let padded = |bytes: &[u8]| {
        let mut head = bytes.to_vec();
        head.resize(14, 0xcc);
        Place::of(&head)
    };
    assert_eq!(padded(&[0x55]), Place::Emulated);
    assert_eq!(padded(&[0x41, 0x57]), Place::Emulated);
    assert_eq!(padded(&[0x48, 0x89, 0xe5]), Place::Entry);
    assert_eq!(padded(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89]), Place::Entry, "nothing is gained behind it");
    assert_eq!(padded(&[0x81, 0x3d, 0, 0, 0, 0, 0, 0xba, 0x1c, 0x32, 0x75]), Place::Entry);
    assert_eq!(Place::of(&[]), Place::Entry);
}

#[test]
fn no_damage_makes_the_reader_panic_or_read_beyond_its_bounds() {
    let whole = library();
    for length in 0..whole.len() {
        drop(functions(&whole[..length], all));
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            drop(functions(damaged.as_slice(), all));
            damaged[at] = if bit == 0 { 0xff } else { 0 };
            drop(functions(damaged.as_slice(), all));
        }
    }
}

/// A library of `count` symbols, each of the same name and place, whose names are `names`.
fn crowd(count: usize, names: &[u8]) -> Vec<u8> {
    let (code, symbols) = (120_usize, 256_usize);
    let names_at = symbols + count * 24;
    let sections = (names_at + names.len()).next_multiple_of(8);
    let mut file = library();
    file.truncate(code);
    file[40..48].copy_from_slice(&(sections as u64).to_le_bytes());
    file[60..62].copy_from_slice(&3_u16.to_le_bytes());
    for at in [64 + 32, 64 + 40] {
        file[at..at + 8].copy_from_slice(&(count as u64 + 64).to_le_bytes());
    }
    file.resize(symbols, 0x90);
    for at in 0..count as u64 {
        file.extend_from_slice(&0_u32.to_le_bytes());
        file.extend_from_slice(&[0x12, 0, 1, 0]);
        file.extend_from_slice(&(ADDRESS + at).to_le_bytes());
        file.extend_from_slice(&16_u64.to_le_bytes());
    }
    file.extend_from_slice(names);
    file.resize(sections, 0);
    for (kind, offset, size, link) in
        [(0_u32, 0, 0, 0_u32), (11, symbols, count * 24, 2), (3, names_at, names.len(), 0)]
    {
        file.extend_from_slice(&[0; 4]);
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&[0; 16]);
        file.extend_from_slice(&(offset as u64).to_le_bytes());
        file.extend_from_slice(&(size as u64).to_le_bytes());
        file.extend_from_slice(&link.to_le_bytes());
        file.extend_from_slice(&[0; 20]);
    }
    file
}

#[test]
fn names_without_an_end_are_never_read_to_it() {
    let longest = std::cell::Cell::new(0);
    let read = |name: &[u8]| {
        longest.set(longest.get().max(name.len()));
        None::<()>
    };
    let endless = vec![b'A'; 4 << 20];
    assert_eq!(functions(crowd(65_535, &endless).as_slice(), read).unwrap(), []);
    assert_eq!(longest.get(), 0, "a name of four million bytes is none");
    let mut names = vec![b'A'; NAME - 1];
    names.push(0);
    drop(functions(crowd(1, &names).as_slice(), read));
    assert_eq!(longest.get(), NAME - 1);
}

#[test]
fn a_library_of_which_every_symbol_is_wanted_is_refused() {
    let many = |count| functions(crowd(count, b"cuInit\0").as_slice(), all);
    assert_eq!(many(1000).unwrap().len(), 1000);
    assert!(matches!(many(65_535), Err(ElfError::TooMany { count: 1025, .. })));
}

#[test]
fn what_is_no_library_of_this_machine_is_refused_in_words() {
    assert!(matches!(functions(&b"#!/bin/sh"[..], all), Err(ElfError::Broken(_))));
    let mut foreign = library();
    foreign[18] = 0xf3;
    assert_eq!(functions(foreign.as_slice(), all), Err(ElfError::Foreign(0xf3)));
}
