/* Which ranks there are, where each runs, and whether they can talk: a ring exchange and a sum with known answers.
 *
 * Rank 0 gathers one record a rank and prints all of them, so that a line is never torn by another rank's output.
 * It also reads every rank's clock (the exchange with the shortest round trip of several decides).
 * The last line has the number of ranks and a check sum (FNV-1a over their lines), so that a cut list is recognised.
 * Wrong answers are printed, not turned into an exit status: whoever reads the output judges it.
 * MPI 3 and POSIX only; nothing of one implementation.
 */
#define _POSIX_C_SOURCE 200112L

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 128, CLOCK_TRIES = 5, TAG_RING = 11, TAG_ASK = 12, TAG_TELL = 13 };

struct record {
    int rank, size, pid, procid;
    char node[NAME], host[NAME], processor[NAME], cpus[NAME];
};

/* Only what cannot break a line or a field: anything else becomes '?'. */
static void copy_word(char *to, const char *from)
{
    size_t i = 0;
    for (; from && from[i] && i < NAME - 1; i++) {
        unsigned char c = (unsigned char)from[i];
        to[i] = (c > ' ' && c < 127) ? (char)c : '?';
    }
    if (i == 0)
        to[i++] = '-';
    memset(to + i, 0, NAME - i);
}

static void allowed_cpus(char *to)
{
    static const char key[] = "Cpus_allowed_list:";
    char line[4096];
    FILE *status = fopen("/proc/self/status", "r");
    copy_word(to, "");
    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, key, sizeof key - 1) == 0) {
            char *word = line + sizeof key - 1;
            word += strspn(word, " \t");
            word[strcspn(word, " \t\r\n")] = '\0';
            copy_word(to, word);
            break;
        }
    }
    if (status)
        fclose(status);
}

static void describe(struct record *me, int rank, int size)
{
    char name[MPI_MAX_PROCESSOR_NAME + 1];
    char host[256];
    const char *procid = getenv("SLURM_PROCID");
    int length = 0;

    memset(me, 0, sizeof *me);
    me->rank = rank;
    me->size = size;
    me->pid = (int)getpid();
    me->procid = procid && *procid ? atoi(procid) : -1;
    copy_word(me->node, getenv("SLURMD_NODENAME"));
    if (gethostname(host, sizeof host) != 0)
        host[0] = '\0';
    host[sizeof host - 1] = '\0';
    copy_word(me->host, host);
    MPI_Get_processor_name(name, &length);
    name[length < MPI_MAX_PROCESSOR_NAME ? length : MPI_MAX_PROCESSOR_NAME] = '\0';
    copy_word(me->processor, name);
    allowed_cpus(me->cpus);
}

static double wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A token goes once around the ring, and every rank adds its number: rank 0 must get the sum of all. */
static int ring_is_right(int rank, int size)
{
    long long token = 0, expected = (long long)size * (size - 1) / 2;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    if (size == 1)
        return 1;
    if (rank == 0) {
        MPI_Send(&token, 1, MPI_LONG_LONG_INT, next, TAG_RING, MPI_COMM_WORLD);
        MPI_Recv(&token, 1, MPI_LONG_LONG_INT, before, TAG_RING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return token == expected;
    }
    MPI_Recv(&token, 1, MPI_LONG_LONG_INT, before, TAG_RING, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token += rank;
    MPI_Send(&token, 1, MPI_LONG_LONG_INT, next, TAG_RING, MPI_COMM_WORLD);
    return 1;
}

static int sum_is_right(int rank, int size)
{
    enum { COUNT = 256 };
    double mine[COUNT], sum[COUNT];
    for (int i = 0; i < COUNT; i++)
        mine[i] = (double)rank + i;
    MPI_Allreduce(mine, sum, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++)
        if (sum[i] != (double)size * (size - 1) / 2 + (double)size * i)
            return 0;
    return 1;
}

/* On rank 0: how far each rank's clock is ahead of ours, in seconds. */
static void read_clocks(double *offsets, int rank, int size)
{
    double dummy = 0.0;
    for (int peer = 1; peer < size; peer++) {
        double best = 1e30;
        for (int i = 0; i < CLOCK_TRIES; i++) {
            if (rank == peer) {
                double now;
                MPI_Recv(&dummy, 1, MPI_DOUBLE, 0, TAG_ASK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                now = wall_clock();
                MPI_Send(&now, 1, MPI_DOUBLE, 0, TAG_TELL, MPI_COMM_WORLD);
            } else if (rank == 0) {
                double before = wall_clock(), theirs, after;
                MPI_Send(&dummy, 1, MPI_DOUBLE, peer, TAG_ASK, MPI_COMM_WORLD);
                MPI_Recv(&theirs, 1, MPI_DOUBLE, peer, TAG_TELL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                after = wall_clock();
                if (after - before < best) {
                    best = after - before;
                    offsets[peer] = theirs - (before + after) / 2;
                }
            }
        }
    }
}

/* FNV-1a over what is not blank. */
static uint32_t fnv(uint32_t sum, const char *text)
{
    for (; *text; text++)
        if (*text != ' ')
            sum = (sum ^ (unsigned char)*text) * 16777619U;
    return sum;
}

static void print_all(const struct record *all, const double *offsets, int size, int ring, int sum)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1];
    char row[4 * NAME + 200];
    uint32_t check = 2166136261U;
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\r\n")] = '\0';
    printf("# hpcadmin mpi_hello 1\n# library %.200s\n", version);
    for (int i = 0; i < size; i++) {
        snprintf(row, sizeof row, "rank %d of %d node=%s host=%s processor=%s procid=%d pid=%d cpus=%s clock=%+.6f",
                 all[i].rank, all[i].size, all[i].node, all[i].host, all[i].processor, all[i].procid, all[i].pid,
                 all[i].cpus, offsets[i]);
        check = fnv(check, row);
        printf("%s\n", row);
    }
    printf("# ring %s\n# sum %s\n", ring ? "right" : "wrong", sum ? "right" : "wrong");
    printf("# end mpi_hello rows=%d check=%08lx\n", size, (unsigned long)check);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int rank = 0, size = 0, ring, sum, all_right = 0;
    struct record me, *all = NULL;
    double *offsets = NULL;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    describe(&me, rank, size);
    if (rank == 0) {
        all = calloc((size_t)size, sizeof *all);
        offsets = calloc((size_t)size, sizeof *offsets);
        if (!all || !offsets) {
            fprintf(stderr, "mpi_hello: out of memory\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    MPI_Gather(&me, (int)sizeof me, MPI_BYTE, all, (int)sizeof me, MPI_BYTE, 0, MPI_COMM_WORLD);
    ring = ring_is_right(rank, size);
    sum = sum_is_right(rank, size);
    MPI_Allreduce(&sum, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    read_clocks(offsets, rank, size);
    if (rank == 0)
        print_all(all, offsets, size, ring, all_right);
    free(all);
    free(offsets);
    MPI_Finalize();
    return 0;
}
