/* A library with the functions of NVIDIA's libnvidia-ml.so.1 that the sidecar calls, for hosts without a driver: two
 * GPUs near the CPU of NVML_CPU, busy for half of the time, throttled by heat. It lacks every other function, as an old
 * driver lacks new ones. */
#include <stdlib.h>
#include <string.h>

typedef void *device;
struct utilization { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };

static int gpus[2];

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return "an error"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d) { *d = &gpus[i]; return 0; }
int nvmlDeviceGetUUID(device d, char *s, unsigned n) { strcpy(s, d == &gpus[0] ? "GPU-0000" : "GPU-1111"); return 0; }
int nvmlDeviceGetName(device d, char *s, unsigned n) { strcpy(s, "Test GPU"); return 0; }
int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *next) { return 3; /* not supported */ }
int nvmlDeviceGetMemoryInfo(device d, struct memory *m) { m->total = 80ull << 30; m->used = 60ull << 30; return 0; }
int nvmlDeviceGetUtilizationRates(device d, struct utilization *u) { u->gpu = 50; return 0; }
int nvmlDeviceGetPcieThroughput(device d, int way, unsigned *kb) { *kb = 2000 + way; return 0; }
int nvmlDeviceGetClockInfo(device d, int kind, unsigned *mhz) { *mhz = 1500; return 0; }
int nvmlDeviceGetMaxClockInfo(device d, int kind, unsigned *mhz) { *mhz = 1980; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *r) { *r = 32; return 0; }

int nvmlDeviceGetCpuAffinity(device d, unsigned words, unsigned long *set)
{
	int cpu = atoi(getenv("NVML_CPU"));
	memset(set, 0, words * sizeof *set);
	set[cpu / 64] = 1ul << cpu % 64;
	return 0;
}
