/* What the stand-ins know of the simulated hardware: the GPUs of this node and its faults. */
#ifndef SIMHW_H
#define SIMHW_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIM_MAX_GPUS 64

struct sim_gpu {
    int minor;
    long memory_mib;
    unsigned domain, bus, device;
    char uuid[64];
    char model[96];
    int lost, slow;
};

static inline const char *sim_path(const char *variable, const char *fallback)
{
    const char *value = getenv(variable);
    return value && *value ? value : fallback;
}

/* Marks the GPUs that the fault file names: lines "gpu N lost" or "gpu N slow". No file: no faults. */
static inline void sim_read_faults(struct sim_gpu *gpus, int count)
{
    char line[128], kind[16];
    int number;
    FILE *file = fopen(sim_path("HPCADMIN_SIM_FAULTS", "/run/hpcadmin/faults"), "re");

    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "gpu %d %15s", &number, kind) != 2 || number < 0 || number >= count)
            continue;
        gpus[number].lost |= !strcmp(kind, "lost");
        gpus[number].slow |= !strcmp(kind, "slow");
    }
    fclose(file);
}

/* Fills gpus in order of index; returns how many there are, -1 when this node has no simulated driver. */
static inline int sim_read_gpus(struct sim_gpu *gpus)
{
    char path[4096], line[512];
    int count = 0, index;
    FILE *file;

    if (snprintf(path, sizeof path, "%s/gpus.tsv", sim_path("HPCADMIN_SIM_DIR", "/etc/hpcadmin/sim")) >= (int)sizeof path)
        return -1;
    file = fopen(path, "re");
    if (!file)
        return -1;
    while (count < SIM_MAX_GPUS && fgets(line, sizeof line, file)) {
        struct sim_gpu *gpu = &gpus[count];
        memset(gpu, 0, sizeof *gpu);
        if (sscanf(line, "%d\t%d\t%x:%x:%x.0\t%63[^\t]\t%ld\t%95[^\n]", &index, &gpu->minor, &gpu->domain, &gpu->bus,
                   &gpu->device, gpu->uuid, &gpu->memory_mib, gpu->model) != 8 || index != count)
            break;
        count++;
    }
    fclose(file);
    sim_read_faults(gpus, count);
    return count;
}

#endif
