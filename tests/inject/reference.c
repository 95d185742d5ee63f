// Where NVIDIA's header has the fields of CUPTI's records that the injected library reads: the lines of
// `cuda/inject/examples/layouts.rs`. KERNEL, MEMCPY and MEMSET are the newest structures of the header. Then the library
// itself, without a GPU: it has every function, and steps over records of these structures one by one, if it says
// anything without a driver (13.5 does not).
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>
#include <cupti_activity.h>

#define PLACE(name, of, field) printf("%s %s %zu\n", name, #field, offsetof(of, field))

static const char *functions[] = {
    "cuptiGetVersion", "cuptiSubscribe", "cuptiUnsubscribe", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable",
    "cuptiActivityDisable", "cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
};

int main(int count, char **arguments) {
    PLACE("kernel", KERNEL, kind);
    PLACE("kernel", KERNEL, registersPerThread);
    PLACE("kernel", KERNEL, start);
    PLACE("kernel", KERNEL, end);
    PLACE("kernel", KERNEL, deviceId);
    PLACE("kernel", KERNEL, gridX);
    PLACE("kernel", KERNEL, gridY);
    PLACE("kernel", KERNEL, gridZ);
    PLACE("kernel", KERNEL, blockX);
    PLACE("kernel", KERNEL, blockY);
    PLACE("kernel", KERNEL, blockZ);
    PLACE("kernel", KERNEL, staticSharedMemory);
    PLACE("kernel", KERNEL, dynamicSharedMemory);
    PLACE("kernel", KERNEL, name);
    PLACE("memcpy", MEMCPY, kind);
    PLACE("memcpy", MEMCPY, copyKind);
    PLACE("memcpy", MEMCPY, bytes);
    PLACE("memcpy", MEMCPY, start);
    PLACE("memcpy", MEMCPY, end);
    PLACE("memcpy", MEMCPY, deviceId);
    PLACE("memset", MEMSET, kind);
    PLACE("memset", MEMSET, bytes);
    PLACE("memset", MEMSET, start);
    PLACE("memset", MEMSET, end);
    PLACE("memset", MEMSET, deviceId);
    fflush(stdout);
    if (count < 2) return 0;

    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!dlsym(library, functions[i])) return fprintf(stderr, "no %s\n", functions[i]), 1;
    CUptiResult (*version_of)(uint32_t *) = dlsym(library, "cuptiGetVersion");
    CUptiResult (*next)(uint8_t *, size_t, CUpti_Activity **) = dlsym(library, "cuptiActivityGetNextRecord");
    uint32_t version = 0;
    CUptiResult asked = version_of(&version);
    if (asked == CUPTI_ERROR_UNKNOWN || asked == CUPTI_ERROR_NOT_INITIALIZED)
        return fprintf(stderr, "a kernel's record has %zu bytes; the library says nothing without a driver\n", sizeof(KERNEL)), 0;
    _Alignas(8) static uint8_t buffer[4096];
    const size_t sizes[] = {sizeof(KERNEL), sizeof(MEMCPY), sizeof(KERNEL), sizeof(MEMSET), sizeof(KERNEL)};
    const uint32_t kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                              CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET,
                              CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
    size_t valid = 0, at = 0;
    for (size_t i = 0; i < 5; valid += sizes[i++]) memcpy(buffer + valid, &kinds[i], sizeof *kinds);
    CUpti_Activity *record = NULL;
    for (size_t i = 0; i < 5; at += sizes[i++]) {
        CUptiResult status = next(buffer, valid, &record);
        if (status != CUPTI_SUCCESS || (uint8_t *)record != buffer + at)
            return fprintf(stderr, "record %zu: status %d, at %td instead of %zu\n", i, status, (uint8_t *)record - buffer, at), 1;
    }
    CUptiResult end = next(buffer, valid, &record);
    fprintf(stderr, "version %u (status %d), a kernel's record has %zu bytes, status %d after the last\n", version, asked, sizeof(KERNEL), end);
    return asked != CUPTI_SUCCESS || end != CUPTI_ERROR_MAX_LIMIT_REACHED;
}
