//! Making a node: from a scenario to a state directory.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::layout::{Device, Engine, MAGIC, MAX_DEVICES, MAX_ENGINES, NONE, Shared, VERSION, index};
use crate::node::{ORACLE_FILE, STATE_FILE, map};
use crate::preset::{Model, Preset};
use crate::scenario::{Gpu, Mig, Scenario};
use crate::text::Text;
use crate::{Error, clock};

const MIB: u64 = 1 << 20;

/// Makes the state directory of a node: state file, empty oracle log, device files. An existing node is replaced;
/// processes that have it open keep the old one.
pub fn create(dir: &Path, scenario: &Scenario) -> Result<(), Error> {
    std::fs::create_dir_all(dir.join("dev")).map_err(|e| Error::file("create directory", dir, e))?;
    let path = dir.join(STATE_FILE);
    let fresh = dir.join("state.new");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&fresh)
        .map_err(|e| Error::file("create state file", &fresh, e))?;
    file.set_len(size_of::<Shared>() as u64).map_err(|e| Error::file("size state file", &fresh, e))?;
    let mut mapped = map(&file).map_err(|e| Error::file("map state file", &fresh, e))?;
    // SAFETY: the mapping is as long as `Shared`, zeroed (all records are valid then), and the file has no other
    // user before the rename below.
    let shared = unsafe { mapped.as_mut() };
    let filled = fill(shared, scenario);
    if filled.is_ok() {
        init_mutex(&mut shared.mutex);
    }
    let minors: Vec<u32> = shared.device.iter().take(shared.devices as usize).map(|d| d.minor).collect();
    // SAFETY: `shared` is not used after this; the range is the one mapped above.
    let unmapped = unsafe { rustix::mm::munmap(mapped.as_ptr().cast(), size_of::<Shared>()) };
    unmapped.map_err(|e| Error::file("unmap", &fresh, e))?;
    filled?;
    // As open as the real device files: a reader need not be root, but it must take part in the lock.
    let open_to_all = |file: &File| file.set_permissions(Permissions::from_mode(0o666));
    let make = |name: &Path| {
        File::create(name).and_then(|f| open_to_all(&f)).map_err(|e| Error::file("create", name, e))
    };
    open_to_all(&file).map_err(|e| Error::file("set permissions", &fresh, e))?;
    make(&dir.join(ORACLE_FILE))?;
    for name in ["nvidiactl", "nvidia-uvm"] {
        make(&dir.join("dev").join(name))?;
    }
    for minor in minors {
        make(&dir.join("dev").join(format!("nvidia{minor}")))?;
    }
    std::fs::rename(&fresh, &path).map_err(|e| Error::file("rename to", &path, e))
}

fn init_mutex(mutex: &mut libc::pthread_mutex_t) {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: `attributes` is room for the attributes.
    unsafe { libc::pthread_mutexattr_init(attributes) };
    // SAFETY: initialised above.
    unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) };
    // SAFETY: initialised above.
    unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) };
    // SAFETY: the mutex is not in use, the attributes are initialised.
    unsafe { libc::pthread_mutex_init(mutex, attributes) };
}

fn fill(s: &mut Shared, scenario: &Scenario) -> Result<(), Error> {
    let now = clock::mono();
    s.magic = MAGIC;
    s.version = VERSION;
    s.cuda_version = scenario.cuda_version;
    s.epoch = now;
    s.real_offset = clock::real().saturating_sub(now);
    s.seed = scenario.seed;
    s.merge_gap = scenario.oracle.merge_gap_us * 1000;
    s.driver_version = Text::new(&scenario.driver_version);
    s.swept = now;
    for gpu in &scenario.gpu {
        let named = gpu.uuid.is_some() || gpu.minor.is_some() || gpu.pci.is_some();
        if gpu.count > 1 && (named || gpu.mig.iter().any(|m| m.uuid.is_some())) {
            return Err(Error::Invalid(
                "gpu: `count` above 1 leaves no room for uuid, minor or pci".to_owned(),
            ));
        }
        for _ in 0..gpu.count {
            add_gpu(s, scenario.seed, gpu)?;
        }
    }
    for fault in &scenario.fault {
        s.add_fault(fault, now)?;
    }
    Ok(())
}

fn add_gpu(s: &mut Shared, seed: u64, gpu: &Gpu) -> Result<(), Error> {
    let at = s.devices as usize;
    if at >= MAX_DEVICES {
        return Err(Error::Invalid(format!("more than {MAX_DEVICES} devices")));
    }
    let number = s.devices;
    let preset = gpu.model.preset();
    let bus = 0x18 + number * 0x10;
    let pci_bus = gpu.pci.clone().unwrap_or_else(|| format!("00000000:{bus:02X}:00.0"));
    let pci = parse_pci(&pci_bus).ok_or_else(|| Error::Invalid(format!("pci bus id `{pci_bus}`")))?;
    let uuid = gpu.uuid.clone().unwrap_or_else(|| identity("GPU", seed, u64::from(number)));
    let c = gpu.counters;
    let periods = [c.util_period_ms, c.process_period_ms, c.gpm_refresh_ms];
    if periods.contains(&0) || gpu.quantum_us == 0 {
        return Err(Error::Invalid("gpu: periods and quantum_us must be above 0".to_owned()));
    }
    let memory = gpu.memory_mib.unwrap_or(preset.memory_mib) * MIB;
    let engine = s.engines;
    s.device[at] = Device {
        model: model_code(gpu.model),
        minor: gpu.minor.unwrap_or(number),
        sms: gpu.sms.unwrap_or(preset.sms),
        idle_w: gpu.idle_w.unwrap_or(preset.idle_w),
        max_w: gpu.max_w.unwrap_or(preset.max_w),
        mps: u32::from(gpu.mps),
        mps_samples: u32::from(c.mps_server_samples),
        mig: u32::from(gpu.mig_mode || !gpu.mig.is_empty()),
        process_step: c.process_step,
        process_drop: c.process_drop_permille,
        process_latest: u32::from(c.process_latest_only),
        pci,
        engine,
        engines: 0,
        uuid: Text::new(&uuid),
        pci_bus: Text::new(&pci_bus),
        memory,
        context: gpu.context_mib * MIB,
        quantum: gpu.quantum_us * 1000,
        period: periods.map(|ms| ms * clock::MILLI),
        process_lag: c.process_lag_ms * clock::MILLI,
        ..s.device[at]
    };
    s.devices += 1;
    if s.device[at].mig == 0 {
        let sms = s.device[at].sms;
        return add_engine(s, at, &Part { gi: NONE, ci: 1, slices: 7, sms, memory, ..Part::default() });
    }
    if !preset.mig {
        return Err(Error::Invalid(format!("{} has no MIG", preset.name)));
    }
    add_instances(s, at, seed, gpu, &preset)
}

fn add_instances(s: &mut Shared, device: usize, seed: u64, gpu: &Gpu, preset: &Preset) -> Result<(), Error> {
    let mut taken: Vec<u32> = gpu.mig.iter().filter_map(|m| m.gi).collect();
    let (mut compute, mut memory, mut mig_index) = (0, 0, 0);
    for (n, Mig { profile, gi, ci, uuid }) in gpu.mig.iter().enumerate() {
        let slice = preset
            .slice(profile)
            .ok_or_else(|| Error::Invalid(format!("{} has no MIG profile `{profile}`", preset.name)))?;
        compute += slice.compute;
        memory += slice.memory;
        let free = (slice.first_id..slice.first_id + slice.max).find(|id| !taken.contains(id));
        let gi = gi.or(free).ok_or_else(|| Error::Invalid(format!("no place for another `{profile}`")))?;
        taken.push(gi);
        let key = (u64::from(index(device)) << 8) + n as u64 + 1_000_000;
        let uuid = uuid.clone().unwrap_or_else(|| identity("MIG", seed, key));
        let part = Part {
            gi,
            ci: u32::from(*ci),
            slices: slice.compute,
            sms: slice.sms,
            memory: preset.slice_mib(&slice, s.device[device].memory / MIB) * MIB,
            memory_slices: slice.memory,
            profile_id: slice.profile_id,
            mig_index: if *ci { mig_index } else { NONE },
            uuid,
            profile: profile.clone(),
        };
        mig_index += u32::from(*ci);
        add_engine(s, device, &part)?;
    }
    if compute > 7 || memory > 8 {
        return Err(Error::Invalid(format!(
            "MIG instances take {compute} of 7 compute and {memory} of 8 memory slices"
        )));
    }
    Ok(())
}

/// What distinguishes an engine at its creation.
struct Part {
    gi: u32,
    ci: u32,
    slices: u32,
    sms: u32,
    memory: u64,
    memory_slices: u32,
    profile_id: u32,
    mig_index: u32,
    uuid: String,
    profile: String,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            gi: NONE,
            ci: 0,
            slices: 0,
            sms: 0,
            memory: 0,
            memory_slices: 8,
            profile_id: 0,
            mig_index: NONE,
            uuid: String::new(),
            profile: String::new(),
        }
    }
}

fn add_engine(s: &mut Shared, device: usize, part: &Part) -> Result<(), Error> {
    let at = s.engines as usize;
    if at >= MAX_ENGINES {
        return Err(Error::Invalid(format!("more than {MAX_ENGINES} devices and instances")));
    }
    let now = s.epoch;
    let period = s.device[device].period;
    let e: &mut Engine = &mut s.engine[at];
    e.device = index(device);
    (e.gi, e.ci, e.slices, e.sms) = (part.gi, part.ci, part.slices, part.sms);
    (e.profile_id, e.memory_slices, e.mig_index) = (part.profile_id, part.memory_slices, part.mig_index);
    e.uuid = Text::new(&part.uuid);
    e.profile = Text::new(&part.profile);
    e.memory = part.memory;
    e.now = now;
    e.turn = NONE;
    e.last_active = NONE;
    e.next = period.map(|p| now + p);
    e.gpm.at = now;
    e.ring[0].at = now;
    e.snapshots = 1;
    s.engines += 1;
    s.device[device].engines += 1;
    Ok(())
}

const fn model_code(model: Model) -> u32 {
    match model {
        Model::H100 => 0,
        Model::A100 => 1,
        Model::T4 => 2,
        Model::L40S => 3,
        Model::Gtx1650 => 4,
    }
}

impl Device {
    /// The constants of its model.
    pub const fn preset(&self) -> Preset {
        match self.model {
            0 => Model::H100.preset(),
            1 => Model::A100.preset(),
            2 => Model::T4.preset(),
            3 => Model::L40S.preset(),
            _ => Model::Gtx1650.preset(),
        }
    }
}

fn parse_pci(text: &str) -> Option<[u32; 3]> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, _function) = rest.split_once('.')?;
    let hex = |t| u32::from_str_radix(t, 16).ok();
    Some([hex(domain)?, hex(bus)?, hex(device)?])
}

/// A UUID that depends only on the seed and the number.
fn identity(prefix: &str, seed: u64, number: u64) -> String {
    let a = mix(seed.wrapping_mul(0x1_0000_0001).wrapping_add(number));
    let b = mix(a ^ 0x5bd1_e995);
    format!(
        "{prefix}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff
    )
}

const fn mix(value: u64) -> u64 {
    let x = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
