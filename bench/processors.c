// Makes a program see sixteen processors, so that it starts as many threads, on a machine with fewer. Load it with LD_PRELOAD.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { PROCESSORS = 16 };

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
    (void)pid;
    memset(set, 0, size);
    for (int processor = 0; processor < PROCESSORS; processor++) CPU_SET_S(processor, size, set);
    return 0;
}

int get_nprocs(void) { return PROCESSORS; }

long sysconf(int name) {
    if (name == _SC_NPROCESSORS_CONF || name == _SC_NPROCESSORS_ONLN) return PROCESSORS;
    long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return next(name);
}
