/* libnvidia-ml.so.1 for tests: the NVML functions that gkm.gpus calls, answering what a JSON file says.
 *
 * The file is named by GKM_FAKE_NVML and read at every nvmlInit, as a new driver is seen by a new process:
 *   {"driver_version": "570.86.15", "cuda_driver_version": 12080, "errors": {CALL: ERROR},
 *    "gpus": [{"name", "uuid", "compute_capability": [9, 0], "memory_mib", "pci", "mig", "power_state",
 *              "fabric": {"cluster_uuid", "clique_id", "state", "status", "health_mask", "health_summary", "version",
 *                         "cliques": [{"type", "id"}], "clique_count"},
 *              "fields": {FIELD: [a number for each scope, or null]},
 *              "errors": {CALL: ERROR}}]}
 * CALL is a function's name as in nvml.h; ERROR a name such as NVML_ERROR_GPU_IS_LOST, or HANG, or CRASH.
 * Layouts and numbers are those of nvml.h 13. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "json.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_FILE (1 << 20)
#define VERSION(structure, number) ((unsigned)(sizeof(structure) | ((number) << 24)))

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, VERSION_MISMATCH = 25, UNKNOWN = 999 };

static const struct { int number; const char *name, *text; } errors[] = {
    {1, "UNINITIALIZED", "Uninitialized"}, {2, "INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NOT_SUPPORTED", "Not Supported"}, {4, "NO_PERMISSION", "Insufficient Permissions"},
    {5, "ALREADY_INITIALIZED", "Already Initialized"}, {6, "NOT_FOUND", "Not Found"},
    {7, "INSUFFICIENT_SIZE", "Insufficient Size"}, {8, "INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "DRIVER_NOT_LOADED", "Driver Not Loaded"}, {10, "TIMEOUT", "Timeout"},
    {11, "IRQ_ISSUE", "Interrupt Request Issue"}, {12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "FUNCTION_NOT_FOUND", "Function Not Found"}, {14, "CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "GPU_IS_LOST", "GPU is lost"}, {16, "RESET_REQUIRED", "GPU requires restart"},
    {17, "OPERATING_SYSTEM", "The operating system has blocked the request."},
    {18, "LIB_RM_VERSION_MISMATCH", "RM has detected an NVML/RM version mismatch."}, {19, "IN_USE", "In Use"},
    {20, "MEMORY", "Insufficient Memory"}, {21, "NO_DATA", "No data"},
    {22, "VGPU_ECC_NOT_SUPPORTED", "ECC is not supported on vGPU"},
    {23, "INSUFFICIENT_RESOURCES", "Insufficient Resources"}, {24, "FREQ_NOT_SUPPORTED", "Frequency not supported"},
    {25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"}, {26, "DEPRECATED", "Deprecated"},
    {27, "NOT_READY", "Not Ready"}, {28, "GPU_NOT_FOUND", "GPU not found"}, {29, "INVALID_STATE", "Invalid state"},
    {30, "RESET_TYPE_NOT_SUPPORTED", "Reset type not supported"}, {999, "UNKNOWN", "Unknown Error"},
};

static char text[MAX_FILE + 1];
static int initialized;

static int load(void) {
    const char *path = getenv("GKM_FAKE_NVML");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return DRIVER_NOT_LOADED;
    size_t length = 0;
    ssize_t count;
    while (length < MAX_FILE && (count = read(file, text + length, MAX_FILE - length)) > 0) length += (size_t)count;
    close(file);
    text[length] = 0;
    return SUCCESS;
}

/* What `object` says that a call has to answer instead: SUCCESS when it says nothing. */
static int forced(const char *object, const char *call) {
    char name[64];
    if (json_string(json_member(json_member(object, "errors"), call), name, sizeof name) != 1) return SUCCESS;
    if (!strcmp(name, "HANG")) for (;;) pause();
    if (!strcmp(name, "CRASH")) raise(SIGSEGV);
    const char *plain = strncmp(name, "NVML_ERROR_", 11) ? name : name + 11;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (!strcmp(errors[i].name, plain)) return errors[i].number;
    return UNKNOWN;
}

static int system_call(const char *call) {
    return initialized ? forced(text, call) : UNINITIALIZED;
}

/* A handle is the place of the GPU's object in the text. */
static int device_call(const char *gpu, const char *call) {
    if (!initialized) return UNINITIALIZED;
    return gpu ? forced(gpu, call) : INVALID_ARGUMENT;
}

static int answer_string(const char *value, char *into, unsigned size) {
    int copied = json_string(value, into, size);
    return copied > 0 ? SUCCESS : copied < 0 ? INSUFFICIENT_SIZE : NOT_SUPPORTED;
}

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int result = load();
    if (result == SUCCESS) result = forced(text, "nvmlInit");
    if (result == SUCCESS) initialized++;
    return result;
}

EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT int nvmlShutdown(void) {
    int result = system_call("nvmlShutdown");
    if (result == SUCCESS) initialized--;
    return result;
}

EXPORT const char *nvmlErrorString(int result) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].number == result) return errors[i].text;
    return result == SUCCESS ? "Success" : "Unknown Error";
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    int result = system_call("nvmlSystemGetDriverVersion");
    return result ? result : answer_string(json_member(text, "driver_version"), version, length);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    int result = system_call("nvmlSystemGetCudaDriverVersion");
    if (result == SUCCESS) *version = (int)json_number(json_member(text, "cuda_driver_version"), 0);
    return result;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    int result = system_call("nvmlDeviceGetCount");
    if (result == SUCCESS) *count = json_count(json_member(text, "gpus"));
    return result;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, const char **device) {
    int result = system_call("nvmlDeviceGetHandleByIndex");
    if (result) return result;
    const char *gpu = json_item(json_member(text, "gpus"), index);
    if (!gpu) return INVALID_ARGUMENT;
    result = forced(gpu, "nvmlDeviceGetHandleByIndex");
    if (result == SUCCESS) *device = gpu;
    return result;
}

EXPORT int nvmlDeviceGetName(const char *gpu, char *name, unsigned length) {
    int result = device_call(gpu, "nvmlDeviceGetName");
    return result ? result : answer_string(json_member(gpu, "name"), name, length);
}

EXPORT int nvmlDeviceGetUUID(const char *gpu, char *uuid, unsigned length) {
    int result = device_call(gpu, "nvmlDeviceGetUUID");
    return result ? result : answer_string(json_member(gpu, "uuid"), uuid, length);
}

EXPORT int nvmlDeviceGetCudaComputeCapability(const char *gpu, int *major, int *minor) {
    int result = device_call(gpu, "nvmlDeviceGetCudaComputeCapability");
    if (result) return result;
    const char *capability = json_member(gpu, "compute_capability");
    *major = (int)json_number(json_item(capability, 0), 0);
    *minor = (int)json_number(json_item(capability, 1), 0);
    return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

EXPORT int nvmlDeviceGetMemoryInfo(const char *gpu, Memory *memory) {
    int result = device_call(gpu, "nvmlDeviceGetMemoryInfo");
    if (result) return result;
    unsigned long long total = json_number(json_member(gpu, "memory_mib"), 0) << 20;
    *memory = (Memory){total, total, 0};
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(const char *gpu, MemoryV2 *memory) {
    int result = device_call(gpu, "nvmlDeviceGetMemoryInfo");
    if (result) return result;
    if (memory->version != VERSION(MemoryV2, 2)) return VERSION_MISMATCH;
    unsigned long long total = json_number(json_member(gpu, "memory_mib"), 0) << 20;
    *memory = (MemoryV2){memory->version, total, 0, total, 0};
    return SUCCESS;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } Pci;

EXPORT int nvmlDeviceGetPciInfo_v3(const char *gpu, Pci *pci) {
    int result = device_call(gpu, "nvmlDeviceGetPciInfo");
    if (result) return result;
    *pci = (Pci){0};
    result = answer_string(json_member(gpu, "pci"), pci->address, sizeof pci->address);
    if (result == SUCCESS) sscanf(pci->address, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return result;
}

EXPORT int nvmlDeviceGetMigMode(const char *gpu, unsigned *current, unsigned *pending) {
    int result = device_call(gpu, "nvmlDeviceGetMigMode");
    const char *mode = result ? NULL : json_member(gpu, "mig");
    if (result || !mode) return result ? result : NOT_SUPPORTED;
    *current = *pending = (unsigned)json_number(mode, 0);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPowerState(const char *gpu, unsigned *state) {
    int result = device_call(gpu, "nvmlDeviceGetPowerState");
    const char *said = result ? NULL : json_member(gpu, "power_state");
    if (result || !said || *said == 'n') return result ? result : NOT_SUPPORTED; /* n: null */
    *state = (unsigned)json_number(said, 0);
    return SUCCESS;
}

typedef struct { uint8_t cluster[16]; int status; uint32_t clique; uint32_t state; } FabricV1;
typedef struct { unsigned version; uint8_t cluster[16]; int status; uint32_t clique; uint32_t state; uint32_t mask; } FabricV2;
typedef struct { unsigned version; uint8_t cluster[16]; int status; uint32_t clique; uint32_t state; uint32_t mask;
                 uint8_t summary; } FabricV3;
typedef struct { uint8_t type; uint32_t id; } Clique;
typedef struct { uint8_t cluster[16]; int status; Clique cliques[64]; uint32_t clique_count; uint8_t state; uint32_t mask;
                 uint8_t summary; } FabricV4;

static void cluster_uuid(const char *fabric, uint8_t into[16]) {
    char uuid[64] = "";
    unsigned digits = 0;
    memset(into, 0, 16);
    json_string(json_member(fabric, "cluster_uuid"), uuid, sizeof uuid);
    for (const char *at = uuid; *at && digits < 32; at++) {
        char digit[2] = {*at, 0};
        if (*at == '-') continue;
        into[digits / 2] = (uint8_t)(into[digits / 2] << 4 | strtoul(digit, NULL, 16));
        digits++;
    }
}

static void fill(const char *fabric, uint8_t cluster[16], int *status, uint32_t *clique, uint32_t *state) {
    cluster_uuid(fabric, cluster);
    *status = (int)json_number(json_member(fabric, "status"), 0);
    *clique = (uint32_t)json_number(json_member(fabric, "clique_id"), 0);
    *state = (uint32_t)json_number(json_member(fabric, "state"), 3);
}

EXPORT int nvmlDeviceGetGpuFabricInfo(const char *gpu, FabricV1 *info) {
    int result = device_call(gpu, "nvmlDeviceGetGpuFabricInfo");
    const char *fabric = result ? NULL : json_member(gpu, "fabric");
    if (result || !fabric) return result ? result : NOT_SUPPORTED;
    fill(fabric, info->cluster, &info->status, &info->clique, &info->state);
    return SUCCESS;
}

/* "version" in the file is the newest structure that this driver knows. */
EXPORT int nvmlDeviceGetGpuFabricInfoV(const char *gpu, FabricV3 *info) {
    int result = device_call(gpu, "nvmlDeviceGetGpuFabricInfo");
    const char *fabric = result ? NULL : json_member(gpu, "fabric");
    if (result || !fabric) return result ? result : NOT_SUPPORTED;
    unsigned newest = (unsigned)json_number(json_member(fabric, "version"), 3);
    int second = info->version == VERSION(FabricV2, 2), third = info->version == VERSION(FabricV3, 3);
    if (!(second && newest >= 2) && !(third && newest >= 3)) return VERSION_MISMATCH;
    fill(fabric, info->cluster, &info->status, &info->clique, &info->state);
    info->mask = (uint32_t)json_number(json_member(fabric, "health_mask"), 0);
    if (third) info->summary = (uint8_t)json_number(json_member(fabric, "health_summary"), 0);
    return SUCCESS;
}

/* Without "cliques" the GPU has one, for unicast pointers: "clique_id". */
EXPORT int nvmlDeviceGetGpuFabricInfo_v4(const char *gpu, FabricV4 *info) {
    int result = device_call(gpu, "nvmlDeviceGetGpuFabricInfo");
    const char *fabric = result ? NULL : json_member(gpu, "fabric");
    if (result || !fabric) return result ? result : NOT_SUPPORTED;
    if (json_number(json_member(fabric, "version"), 3) < 4) return FUNCTION_NOT_FOUND;
    const char *cliques = json_member(fabric, "cliques");
    unsigned count = cliques ? json_count(cliques) : 1;
    uint32_t first, state;
    memset(info, 0, sizeof *info);
    fill(fabric, info->cluster, &info->status, &first, &state);
    info->cliques[0].id = first;
    for (unsigned at = 0; cliques && at < count && at < 64; at++) {
        info->cliques[at].type = (uint8_t)json_number(json_member(json_item(cliques, at), "type"), 0);
        info->cliques[at].id = (uint32_t)json_number(json_member(json_item(cliques, at), "id"), 0);
    }
    info->clique_count = (uint32_t)json_number(json_member(fabric, "clique_count"), count);
    info->state = (uint8_t)state;
    info->mask = (uint32_t)json_number(json_member(fabric, "health_mask"), 0);
    info->summary = (uint8_t)json_number(json_member(fabric, "health_summary"), 0);
    return SUCCESS;
}

typedef struct { unsigned field, scope; long long timestamp, latency; unsigned type; int status;
                 union { double d; unsigned ui; unsigned long long ull; } value; } FieldValue;

/* A value is an unsigned long long (3), or an unsigned (1) where it is small. */
EXPORT int nvmlDeviceGetFieldValues(const char *gpu, int count, FieldValue *values) {
    int result = device_call(gpu, "nvmlDeviceGetFieldValues");
    for (int i = 0; result == SUCCESS && i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", values[i].field);
        const char *said = json_item(json_member(json_member(gpu, "fields"), name), values[i].scope);
        values[i].status = said && *said != 'n' ? SUCCESS : NOT_SUPPORTED; /* n: null */
        if (values[i].status) continue;
        values[i].value.ull = (unsigned long long)json_number(said, 0);
        values[i].type = values[i].value.ull >> 32 ? 3 : 1;
    }
    return result;
}
