/* A CUDA driver without a GPU: every call succeeds, memory is memory of the host, and a kernel that is launched computes
 * nothing. It has what Triton's driver module and bench/coldstart_kernels.py call. */
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

/* CUdevice_attribute, and what an H100 has: Triton checks that shared memory is no larger. */
enum { MAJOR = 75, MINOR = 76 };
enum { MAX_THREADS_PER_BLOCK = 0 }; /* CUfunction_attribute */
enum { H100_SHARED_BYTES_OF_A_BLOCK = 227 * 1024 };
static int context;

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  strncpy(name, "stand-in without a GPU", (size_t)size);
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == MAJOR ? 9 : attribute == MINOR ? 0 : H100_SHARED_BYTES_OF_A_BLOCK;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **found, int device) { (void)device; *found = &context; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxSetCurrent(void *used) { (void)used; return 0; }
int cuCtxGetCurrent(void **found) { *found = &context; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxGetLimit(size_t *value, int limit) { (void)limit; *value = 1 << 20; return 0; }
int cuCtxSetLimit(int limit, size_t value) { (void)limit; (void)value; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorString(int code, const char **text) { (void)code; *text = "an error"; return 0; }

int cuMemAlloc_v2(unsigned long long *address, size_t size) {
  *address = (unsigned long long)(size_t)malloc(size);
  return *address ? 0 : 2;
}
int cuMemsetD16_v2(unsigned long long address, unsigned short value, size_t count) {
  for (size_t at = 0; at < count; at++) ((unsigned short *)(size_t)address)[at] = value;
  return 0;
}
int cuMemsetD32_v2(unsigned long long address, unsigned value, size_t count) {
  for (size_t at = 0; at < count; at++) ((unsigned *)(size_t)address)[at] = value;
  return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
  memcpy(to, (void *)(size_t)from, size);
  return 0;
}
int cuPointerGetAttribute(void *data, int attribute, unsigned long long address) {
  (void)attribute;
  *(unsigned long long *)data = address;
  return 0;
}

int cuModuleLoadData(void **module, const void *image) { (void)image; *module = &context; return 0; }
int cuModuleUnload(void *module) { (void)module; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  (void)name;
  *function = &context;
  return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
  (void)function;
  *value = attribute == MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function;
  (void)attribute;
  (void)value;
  return 0;
}
int cuFuncSetCacheConfig(void *function, int config) { (void)function; (void)config; return 0; }
int cuStreamIsCapturing(void *stream, int *is_capturing) { (void)stream; *is_capturing = 0; return 0; }
int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
  (void)config;
  (void)function;
  (void)parameters;
  (void)extra;
  return 0;
}
int cuOccupancyMaxActiveClusters(int *clusters, void *function, const void *config) {
  (void)function;
  (void)config;
  *clusters = 1;
  return 0;
}
