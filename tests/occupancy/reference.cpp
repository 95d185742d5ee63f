// Blocks of an SM by NVIDIA's occupancy calculator, `cuda_occupancy.h`, for the launches that
// `daemon/core/examples/occupancies.rs` tries: the same lines, to be compared.
#include <cstdio>
#include <cstdlib>
#include <cuda_occupancy.h>

int main() {
    int major, minor, warps, shared_per_sm, shared_per_block, block, registers, shared, ours;
    long lines = 0, differences = 0;
    // One line a launch: the compute capability and its limits as ours has them, the launch, and what ours says.
    while (scanf("%d %d %d %d %d %d %d %d %d", &major, &minor, &warps, &shared_per_sm, &shared_per_block, &block,
                 &registers, &shared, &ours) == 9) {
        cudaOccDeviceProp device;
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = warps * 32;
        device.regsPerBlock = 65536;
        device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = shared_per_sm;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = shared_per_block;
        device.reservedSharedMemPerBlock = shared_per_sm - shared_per_block;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared_per_block;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        cudaOccResult result;
        cudaOccError error =
            cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, block, shared);
        int theirs = error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1;
        if (theirs != ours && differences++ < 20)
            printf("%d.%d: blocks of %d threads, %d registers, %d bytes: ours %d, theirs %d (error %d)\n", major, minor,
                   block, registers, shared, ours, theirs, error);
        lines++;
    }
    printf("%ld launches, %ld differences\n", lines, differences);
    return lines == 0 || differences > 0;
}
