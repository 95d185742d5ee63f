//! MIG: the division of a GPU.

use nvml_wrapper_sys::bindings as nvml;

use super::{Device, call, string, version, zeroed};
use crate::nvml::Fault;

/// Profiles are numbered from 0 without holes that matter; the newest header has 17, and asking for more is
/// refused without harm.
const PROFILES: u32 = 32;

/// A way to divide a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    /// The driver's id of it on this GPU.
    pub(crate) id: u32,
    /// Compute slices of one instance.
    pub(crate) slices: u32,
    /// How many instances the GPU can have at most.
    pub(crate) instances: u32,
    /// Memory of one instance, in MiB.
    pub(crate) memory_mib: u64,
    /// Such as `1g.10gb`, where the driver names it.
    pub(crate) name: Option<String>,
}

/// What a MIG instance consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Compute slices of its GPU instance.
    pub(crate) gpu_instance_slices: u32,
    /// Compute slices of its compute instance.
    pub(crate) compute_instance_slices: u32,
    /// Memory of its GPU instance, in MiB.
    pub(crate) memory_mib: u64,
}

impl Device {
    /// Whether MIG mode is on.
    pub(crate) fn mig_mode(&self) -> Result<bool, Fault> {
        let (mut current, mut pending) = (0, 0);
        match call!(self.library, nvmlDeviceGetMigMode(self.handle, &raw mut current, &raw mut pending)) {
            Err(fault) if fault.is_unsupported() => Ok(false),
            other => other.map(|()| current == 1),
        }
    }

    /// Every profile that this GPU offers.
    pub(crate) fn profiles(&self) -> Result<Vec<Profile>, Fault> {
        let mut profiles = Vec::new();
        for number in 0..PROFILES {
            match self.profile(number) {
                Ok(profile) => profiles.push(profile),
                Err(fault) if fault.is_unsupported() || fault == Fault::NOT_FOUND => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(profiles)
    }

    fn profile(&self, number: u32) -> Result<Profile, Fault> {
        let mut info: nvml::nvmlGpuInstanceProfileInfo_v2_t = zeroed();
        info.version = version::<nvml::nvmlGpuInstanceProfileInfo_v2_t>(2);
        match call!(self.library, nvmlDeviceGetGpuInstanceProfileInfoV(self.handle, number, &raw mut info)) {
            Ok(()) => Ok(Profile {
                id: info.id,
                slices: info.sliceCount,
                instances: info.instanceCount,
                memory_mib: info.memorySizeMB,
                name: Some(string(&info.name)).filter(|name| !name.is_empty()),
            }),
            Err(_) => self.unnamed_profile(number),
        }
    }

    fn unnamed_profile(&self, number: u32) -> Result<Profile, Fault> {
        let mut info: nvml::nvmlGpuInstanceProfileInfo_t = zeroed();
        call!(self.library, nvmlDeviceGetGpuInstanceProfileInfo(self.handle, number, &raw mut info))?;
        Ok(Profile {
            id: info.id,
            slices: info.sliceCount,
            instances: info.instanceCount,
            memory_mib: info.memorySizeMB,
            name: None,
        })
    }

    /// The GPU instances of this profile: the id of each, and the memory slice at which it starts.
    pub(crate) fn gpu_instances(&self, profile: &Profile) -> Result<Vec<(u32, u32)>, Fault> {
        let length = usize::try_from(profile.instances).unwrap_or_default();
        let mut handles = vec![std::ptr::null_mut(); length];
        // In: nothing. Out: how many. The header requires room for the profile's largest number of instances.
        let mut count = profile.instances;
        call!(
            self.library,
            nvmlDeviceGetGpuInstances(self.handle, profile.id, handles.as_mut_ptr(), &raw mut count)
        )?;
        let count = usize::try_from(count).unwrap_or_default().min(length);
        let mut ids = Vec::with_capacity(count);
        for handle in handles.into_iter().take(count) {
            let mut info: nvml::nvmlGpuInstanceInfo_t = zeroed();
            call!(self.library, nvmlGpuInstanceGetInfo(handle, &raw mut info))?;
            ids.push((info.id, info.placement.start));
        }
        Ok(ids)
    }

    /// How many more instances of a profile could be made.
    pub(crate) fn remaining_capacity(&self, profile: u32) -> Result<u32, Fault> {
        let mut count = 0;
        call!(self.library, nvmlDeviceGetGpuInstanceRemainingCapacity(self.handle, profile, &raw mut count))?;
        Ok(count)
    }

    /// A device for every compute instance.
    pub(crate) fn mig_devices(&self) -> Result<Vec<Self>, Fault> {
        let mut most = 0;
        call!(self.library, nvmlDeviceGetMaxMigDeviceCount(self.handle, &raw mut most))?;
        let mut devices = Vec::new();
        for index in 0..most.min(PROFILES) {
            let mut handle = std::ptr::null_mut();
            match call!(
                self.library,
                nvmlDeviceGetMigDeviceHandleByIndex(self.handle, index, &raw mut handle)
            ) {
                Ok(()) => devices.push(self.library.adopt(handle)),
                // Positions without an instance.
                Err(fault) if fault == Fault::NOT_FOUND || fault.is_unsupported() => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(devices)
    }

    /// The GPU instance of a MIG device.
    pub(crate) fn gpu_instance(&self) -> Result<u32, Fault> {
        let mut id = 0;
        call!(self.library, nvmlDeviceGetGpuInstanceId(self.handle, &raw mut id))?;
        Ok(id)
    }

    /// The compute instance of a MIG device.
    pub(crate) fn compute_instance(&self) -> Result<u32, Fault> {
        let mut id = 0;
        call!(self.library, nvmlDeviceGetComputeInstanceId(self.handle, &raw mut id))?;
        Ok(id)
    }

    /// What a MIG device consists of.
    pub(crate) fn attributes(&self) -> Result<Attributes, Fault> {
        let mut attributes: nvml::nvmlDeviceAttributes_t = zeroed();
        call!(self.library, nvmlDeviceGetAttributes_v2(self.handle, &raw mut attributes))?;
        Ok(Attributes {
            gpu_instance_slices: attributes.gpuInstanceSliceCount,
            compute_instance_slices: attributes.computeInstanceSliceCount,
            memory_mib: attributes.memorySizeMB,
        })
    }
}
