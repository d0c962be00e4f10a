/* Ping-pong between two ranks: latency and bandwidth by message size.
 *
 *   mpi_pingpong [--max BYTES] [--seconds S]
 *
 * For each size (1, 4, 16, ... and BYTES itself) messages go back and forth for a share of S seconds, after a warm-up; a
 * link so slow that few messages fit into that gets a shorter warm-up and three messages.
 * Times are half of a round trip: that of the fastest message, which other load on a node disturbs least, and the median
 * of all. Large messages get twice the time of small ones. Rank 1 returns what it received; rank 0 stamps each message and compares the stamp,
 * and compares every byte in the warm-up and at the end. A mismatch ends the program with status 1.
 * The last line has the number of rows and a check sum (FNV-1a over the rows), so that a cut table is recognised.
 */
#define _POSIX_C_SOURCE 200112L

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 128, MAX_SAMPLES = 20000, MIN_SAMPLES = 3, WARM_UP = 4, MAX_ROWS = 64, LARGE = 65536 };
enum { TAG_GO = 21, TAG_LAST = 22 };
static const long MAX_BYTES = 1L << 30;

struct where {
    int pid;
    char node[NAME], host[NAME];
};

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

static void say_where(struct where *me)
{
    char host[256];
    memset(me, 0, sizeof *me);
    me->pid = (int)getpid();
    copy_word(me->node, getenv("SLURMD_NODENAME"));
    if (gethostname(host, sizeof host) != 0)
        host[0] = '\0';
    host[sizeof host - 1] = '\0';
    copy_word(me->host, host);
}

static unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)((i * 2654435761UL >> 13) + seed * 97U + 1U);
}

static void fill(unsigned char *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = pattern(i, seed);
}

static int is_filled(const unsigned char *buffer, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (buffer[i] != pattern(i, seed))
            return 0;
    return 1;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One message there and back; the half of its time in seconds. The stamp is new in every message. */
static double round_trip(unsigned char *out, unsigned char *in, size_t bytes, uint32_t stamp, int tag)
{
    size_t stamped = bytes < sizeof stamp ? bytes : sizeof stamp;
    MPI_Status status;
    double before, after;
    int got = 0;
    memcpy(out, &stamp, stamped);
    before = MPI_Wtime();
    MPI_Send(out, (int)bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
    MPI_Recv(in, (int)bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD, &status);
    after = MPI_Wtime();
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != (int)bytes || memcmp(in, &stamp, stamped) != 0) {
        printf("# error: message of %lu bytes came back changed\n", (unsigned long)bytes);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return (after - before) / 2;
}

static void whole_message(unsigned char *out, unsigned char *in, size_t bytes, unsigned seed, int tag)
{
    uint32_t first = 0;
    fill(out, bytes, seed);
    memcpy(&first, out, bytes < sizeof first ? bytes : sizeof first);
    memset(in, 0, bytes);
    round_trip(out, in, bytes, first, tag);
    if (!is_filled(in, bytes, seed)) {
        printf("# error: data of %lu bytes came back changed\n", (unsigned long)bytes);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Rank 0: measure one size for `seconds`; number of samples, sorted half round trips in `samples`. */
static int measure(unsigned char *out, unsigned char *in, size_t bytes, double seconds, double *samples)
{
    double start = MPI_Wtime();
    int count = 0;
    for (unsigned i = 0; i == 0 || (i < WARM_UP && MPI_Wtime() - start < seconds / 2); i++)
        whole_message(out, in, bytes, i, TAG_GO);
    start = MPI_Wtime();
    while (count < MAX_SAMPLES) {
        double half = round_trip(out, in, bytes, (uint32_t)count + 1U, TAG_GO);
        samples[count++] = half;
        if (count >= MIN_SAMPLES && MPI_Wtime() - start >= seconds)
            break;
    }
    whole_message(out, in, bytes, 77, TAG_LAST);
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    return count;
}

static void answer(unsigned char *in, size_t bytes)
{
    MPI_Status status;
    int got = 0;
    do {
        MPI_Recv(in, (int)bytes, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        MPI_Send(in, got, MPI_BYTE, 0, status.MPI_TAG, MPI_COMM_WORLD);
    } while (status.MPI_TAG != TAG_LAST);
}

/* FNV-1a over what is not blank. */
static uint32_t fnv(uint32_t sum, const char *text)
{
    for (; *text; text++)
        if (*text != ' ')
            sum = (sum ^ (unsigned char)*text) * 16777619U;
    return sum;
}

static int sizes_up_to(size_t max, size_t *sizes)
{
    int count = 0;
    for (size_t size = 1; size < max && count < MAX_ROWS - 1; size *= 4)
        sizes[count++] = size;
    sizes[count++] = max;
    return count;
}

static void print_head(const struct where *both, long max, double seconds)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1];
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\r\n")] = '\0';
    printf("# hpcadmin mpi_pingpong 1\n# library %.200s\n", version);
    for (int i = 0; i < 2; i++)
        printf("# rank %d node=%s host=%s pid=%d\n", i, both[i].node, both[i].host, both[i].pid);
    printf("# max_bytes %ld seconds %g\n", max, seconds);
    printf("# bytes samples latency_us latency_median_us bandwidth_MB/s bandwidth_median_MB/s\n");
}

static int weight(size_t bytes)
{
    return bytes >= LARGE ? 2 : 1;
}

static void ping(const size_t *sizes, int rows, double seconds, unsigned char *out, unsigned char *in)
{
    double *samples = malloc(MAX_SAMPLES * sizeof *samples);
    uint32_t sum = 2166136261U;
    char row[160];
    int total = 0;
    for (int i = 0; i < rows; i++)
        total += weight(sizes[i]);
    if (!samples) {
        fprintf(stderr, "mpi_pingpong: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 0; i < rows; i++) {
        int count = measure(out, in, sizes[i], seconds * weight(sizes[i]) / total, samples);
        double best = samples[0], median = samples[count / 2];
        snprintf(row, sizeof row, "%10lu %7d %12.3f %12.3f %14.6f %14.6f", (unsigned long)sizes[i], count, best * 1e6, median * 1e6,
                 (double)sizes[i] / best / 1e6, (double)sizes[i] / median / 1e6);
        sum = fnv(sum, row);
        printf("%s\n", row);
        fflush(stdout);
    }
    printf("# end mpi_pingpong rows=%d check=%08lx\n", rows, (unsigned long)sum);
    fflush(stdout);
    free(samples);
}

static int usage(int rank)
{
    if (rank == 0)
        fprintf(stderr, "usage: mpi_pingpong [--max BYTES] [--seconds S], on exactly two ranks\n");
    MPI_Finalize();
    return 2;
}

static int read_options(int argc, char **argv, long *max, double *seconds)
{
    char *end = NULL;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc)
            return 0;
        if (strcmp(argv[i], "--max") == 0)
            *max = strtol(argv[i + 1], &end, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            *seconds = strtod(argv[i + 1], &end);
        else
            return 0;
        if (!end || *end || end == argv[i + 1])
            return 0;
    }
    return *max >= 1 && *max <= MAX_BYTES && *seconds > 0 && *seconds <= 3600;
}

int main(int argc, char **argv)
{
    int rank = 0, size = 0, rows;
    long max = 1L << 20;
    size_t sizes[MAX_ROWS];
    double seconds = 0.8;
    struct where me, both[2];
    unsigned char *out, *in;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!read_options(argc, argv, &max, &seconds) || size != 2)
        return usage(rank);
    out = malloc((size_t)max);
    in = malloc((size_t)max);
    if (!out || !in) {
        fprintf(stderr, "mpi_pingpong: no memory for messages of %ld bytes\n", max);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(out, 0, (size_t)max);
    memset(in, 0, (size_t)max);
    memset(both, 0, sizeof both);
    say_where(&me);
    MPI_Gather(&me, (int)sizeof me, MPI_BYTE, both, (int)sizeof me, MPI_BYTE, 0, MPI_COMM_WORLD);
    rows = sizes_up_to((size_t)max, sizes);
    if (rank == 0) {
        print_head(both, max, seconds);
        ping(sizes, rows, seconds, out, in);
    } else {
        for (int i = 0; i < rows; i++)
            answer(in, sizes[i]);
    }
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
