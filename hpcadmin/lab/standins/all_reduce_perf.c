/* Stand-in for nccl-tests' all_reduce_perf (built with MPI): a real all-reduce over MPI on the CPUs, for nodes with
 * simulated GPUs. Command line, output, failures and exit statuses follow nccl-tests 2.17:
 *
 * - Process p of a node takes CUDA ordinal p * threads * gpus + i, counted within the devices that it sees. A process
 *   that sees one device only (srun --gpus-per-task=1 binds so) therefore fails from the second rank of a node on:
 *   "Invalid number of GPUs: 2 requested but only 1 were found." Either every task sees all of its node's GPUs
 *   (srun --gres=gpu:8), or NCCL_TESTS_DEVICE=0 says where to begin counting.
 * - CUDA_VISIBLE_DEVICES: indices in PCI bus order or UUIDs; the list ends at the first that does not exist. Devices that
 *   a cgroup denies are not counted at all.
 * - Two ranks with one GPU: NCCL's "Duplicate GPU detected", exit status 3. Other CUDA errors 2, too few GPUs 5, wrong
 *   data 7. A rank that fails ends without MPI_Finalize; the others wait until the launcher ends them
 *   (srun --kill-on-bad-exit=1).
 * - Sizes are bounded as by GPU memory, and the same line says so. A slow GPU delays every operation of its rank.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <mpi.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "simhw.h"

#define VERSION "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807"
#define LARGEST_BYTES (32L << 20)     /* what the simulated memory has room for */
#define MAX_LOCAL 16                  /* GPUs of one process */
#define PERIOD 64
#define LINE 2048

enum { CUDA_ERROR = 2, NCCL_ERROR = 3, NOT_IMPLEMENTED = 5, WRONG_RESULTS = 7 };
enum { SUM, PROD, MAX, MIN, AVG };
enum { AVERAGE_RANK0, AVERAGE_MEAN, AVERAGE_MIN, AVERAGE_MAX };

static const struct { const char *name; size_t size; } types[] = {
    {"float", sizeof(float)}, {"double", sizeof(double)}, {"int32", sizeof(int32_t)}, {"int64", sizeof(int64_t)},
};
static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};

static struct {
    long min_bytes, max_bytes, step_bytes, factor;
    int threads, gpus, iters, warmup, aggregate, check, type, op, average, cycles;
} opt = {32L << 20, 32L << 20, 1L << 20, 1, 1, 1, 20, 1, 1, 1, 0, SUM, AVERAGE_MEAN, 1};

static int rank, ranks, local_rank, local, total;     /* of the processes; GPUs of this one and of all */
static char host[256];
static struct sim_gpu all_gpus[SIM_MAX_GPUS];
static struct sim_gpu *visible[SIM_MAX_GPUS], *mine[MAX_LOCAL];
static int visible_count, slow;
static void *sends[MAX_LOCAL], *recvs[MAX_LOCAL];

static void fail(int status, const char *where)
{
    printf(" .. %s pid %d: Test failure %s\n", host, (int)getpid(), where);
    fflush(stdout);
    _exit(status);
}

static void cuda_failure(const char *where, const char *what)
{
    printf("%s: Test CUDA failure %s '%s'\n", host, where, what);
    fail(CUDA_ERROR, "common.cu:1376");
}

static long parse_size(const char *text)
{
    double size;
    char unit[2] = "";
    int found = sscanf(text, "%lf %1s", &size, unit);
    long scale = 1;

    if (found == 2) {
        const char *letter = strchr("kKmMgG", unit[0]);
        if (!letter)
            return -1;
        scale = 1L << (10 * (1 + (letter - "kKmMgG") / 2));
    }
    if (found < 1 || !(size >= 0) || size * (double)scale > 1e15)
        return -1;
    return (long)(size * (double)scale);
}

static int choose(const char *word, const char *what, int count, const char *(*name)(int))
{
    for (int i = 0; i < count; i++)
        if (!strcmp(word, name(i)))
            return i;
    fprintf(stderr, "%s %s is not simulated\n", what, word);
    exit(1);
}

static const char *type_name(int i) { return types[i].name; }
static const char *op_name(int i) { return ops[i]; }

static int whole(const char *text, int least, int most)
{
    char *end;
    long value = strtol(text, &end, 0);

    if (*end || end == text || value < least || value > most) {
        fprintf(stderr, "invalid value '%s', %d to %d are possible\n", text, least, most);
        exit(1);
    }
    return (int)value;
}

static void size_option(const char *text, const char *name, long *into)
{
    *into = parse_size(text);
    if (*into < 0) {
        fprintf(stderr, "invalid size specified for '%s'\n", name);
        exit(255);
    }
}

static void usage(const char *program)
{
    printf("USAGE: %s \n\t[-t,--nthreads <num threads>] \n\t[-g,--ngpus <gpus per thread>] \n\t"
           "[-b,--minbytes <min size in bytes>] \n\t[-e,--maxbytes <max size in bytes>] \n\t"
           "[-i,--stepbytes <increment size>] \n\t[-f,--stepfactor <increment factor>] \n\t"
           "[-n,--iters <iteration count>] \n\t[-m,--agg_iters <aggregated iteration count>] \n\t"
           "[-w,--warmup_iters <warmup iteration count>] \n\t[-N,--run_cycles <cycle count>] \n\t"
           "[-c,--check <check iteration count>] \n\t[-o,--op <sum/prod/min/max/avg>] \n\t"
           "[-d,--datatype <float/double/int32/int64>] \n\t[-a,--average <0/1/2/3>] \n\t[-h,--help]\n", program);
    exit(0);
}

static void parse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"nthreads", 1, 0, 't'}, {"ngpus", 1, 0, 'g'}, {"minbytes", 1, 0, 'b'}, {"maxbytes", 1, 0, 'e'},
        {"stepbytes", 1, 0, 'i'}, {"stepfactor", 1, 0, 'f'}, {"iters", 1, 0, 'n'}, {"agg_iters", 1, 0, 'm'},
        {"warmup_iters", 1, 0, 'w'}, {"run_cycles", 1, 0, 'N'}, {"parallel_init", 1, 0, 'p'}, {"check", 1, 0, 'c'},
        {"op", 1, 0, 'o'}, {"datatype", 1, 0, 'd'}, {"root", 1, 0, 'r'}, {"blocking", 1, 0, 'z'},
        {"stream_null", 1, 0, 'y'}, {"timeout", 1, 0, 'T'}, {"cudagraph", 1, 0, 'G'}, {"report_cputime", 1, 0, 'C'},
        {"average", 1, 0, 'a'}, {"local_register", 1, 0, 'R'}, {"cta_policy", 1, 0, 'x'}, {"help", 0, 0, 'h'}, {0, 0, 0, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:G:C:a:R:x:h", names, NULL)) != -1) {
        switch (c) {
        case 't': opt.threads = whole(optarg, 1, MAX_LOCAL); break;
        case 'g': opt.gpus = whole(optarg, 1, MAX_LOCAL); break;
        case 'b': size_option(optarg, "minbytes", &opt.min_bytes); break;
        case 'e': size_option(optarg, "maxbytes", &opt.max_bytes); break;
        case 'i': size_option(optarg, "stepBytes", &opt.step_bytes); break;
        case 'f': opt.factor = whole(optarg, 0, 1024); break;
        case 'n': opt.iters = whole(optarg, 1, 100000); break;
        case 'm': opt.aggregate = whole(optarg, 1, 1000); break;
        case 'w': opt.warmup = whole(optarg, 0, 100000); break;
        case 'N': opt.cycles = whole(optarg, 1, 1000); break;
        case 'c': opt.check = whole(optarg, 0, 1000); break;
        case 'a': opt.average = whole(optarg, 0, 3); break;
        case 'o': opt.op = choose(optarg, "operation", (int)(sizeof ops / sizeof *ops), op_name); break;
        case 'd': opt.type = choose(optarg, "data type", (int)(sizeof types / sizeof *types), type_name); break;
        case 'p': case 'r': case 'z': case 'y': case 'T': case 'G': case 'C': case 'R': case 'x': break;
        default:
            if (c != 'h')
                printf("invalid option '%c'\n", c);
            usage(argv[0]);
        }
    }
    if (opt.min_bytes > opt.max_bytes) {
        fprintf(stderr, "invalid sizes for 'minbytes' and 'maxbytes': %ld > %ld\n", opt.min_bytes, opt.max_bytes);
        exit(255);
    }
    local = opt.threads * opt.gpus;
    if (local > MAX_LOCAL) {
        fprintf(stderr, "more than %d GPUs of one process are not simulated\n", MAX_LOCAL);
        exit(1);
    }
}

/* The device file's state: 0 usable (a node without the driver answers ENXIO), else the reason. */
static int device_error(const struct sim_gpu *gpu)
{
    char path[4096];
    int fd, error;

    snprintf(path, sizeof path, "%s/nvidia%d", sim_path("HPCADMIN_SIM_DEV", "/dev"), gpu->minor);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    error = errno;
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    return error == ENXIO || error == ENODEV ? 0 : error;
}

/* What CUDA would show this process. */
static void find_visible(void)
{
    struct sim_gpu *there[SIM_MAX_GPUS];
    int known = sim_read_gpus(all_gpus), count = 0;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");

    for (int i = 0; i < known; i++)
        if (device_error(&all_gpus[i]) != EPERM)
            there[count++] = &all_gpus[i];
    if (!list) {
        memcpy(visible, there, (size_t)count * sizeof *there);
        visible_count = count;
        return;
    }
    while (*list && visible_count < SIM_MAX_GPUS) {
        size_t length = strcspn(list, ",");
        struct sim_gpu *found = NULL;
        char *end;
        long number = strtol(list, &end, 10);

        if (end == list + length && length && number >= 0 && number < count)
            found = there[number];
        for (int i = 0; !found && length > 4 && i < count; i++)
            if (!strncmp(list, there[i]->uuid, length))
                found = there[i];
        if (!found)
            break;
        visible[visible_count++] = found;
        list += length + (list[length] == ',');
    }
}

/* Lines of "Using devices", gathered in order of rank; ends the process when a device of it cannot be used. */
static void report_devices(void)
{
    char line[LINE] = "", *lines = NULL;
    int used = 0, first = local_rank * local;
    const char *base = getenv("NCCL_TESTS_DEVICE");

    if (base && atoi(base) != -1)
        first = atoi(base);
    if (!visible_count)
        cuda_failure("util.cu:661", "no CUDA-capable device is detected");
    for (int i = 0; i < visible_count; i++) {
        if (visible[i]->lost)
            cuda_failure("util.cu:661", "unknown error");
        if (device_error(visible[i]))
            cuda_failure("util.cu:661", "OS call failed or operation not supported on this OS");
    }
    for (int i = 0; i < local; i++) {
        if (first < 0 || first + i >= visible_count) {
            fprintf(stderr, "Invalid number of GPUs: %d requested but only %d were found.\n"
                            "Please check the number of processes and GPUs per process.\n", first + local, visible_count);
            fail(NOT_IMPLEMENTED, "common.cu:1376");
        }
        mine[i] = visible[first + i];
        slow |= mine[i]->slow;
        used += snprintf(line + used, LINE - (size_t)used,
                         "#  Rank %2d Group %2d Pid %6d on %10.64s device %2d [%04x:%02x:%02x] %s\n", rank * local + i, 0,
                         (int)getpid(), host, first + i, mine[i]->domain, mine[i]->bus, mine[i]->device, mine[i]->model);
        if (used >= LINE) {
            used = LINE - 1;
            break;
        }
    }
    if (rank == 0) {
        lines = malloc((size_t)ranks * LINE);
        if (!lines)
            cuda_failure("util.cu:690", "out of memory");
    }
    MPI_Gather(line, LINE, MPI_BYTE, lines, LINE, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < ranks; i++)
        fputs(lines + (size_t)i * LINE, stdout);
    free(lines);
}

/* As NCCL when its communicator is made: no GPU may serve two ranks. */
static void check_duplicates(void)
{
    struct { char host[256]; uint64_t bus[MAX_LOCAL]; } self, *everyone = malloc((size_t)ranks * sizeof self);

    if (!everyone)
        cuda_failure("common.cu:1242", "out of memory");
    memset(&self, 0, sizeof self);
    memcpy(self.host, host, sizeof self.host);
    for (int i = 0; i < local; i++)
        self.bus[i] = (uint64_t)mine[i]->domain << 20 | mine[i]->bus << 12 | mine[i]->device << 4;
    MPI_Allgather(&self, sizeof self, MPI_BYTE, everyone, sizeof self, MPI_BYTE, MPI_COMM_WORLD);
    for (int p = 0; p < ranks; p++)
        for (int a = 0; a < local; a++)
            for (int b = 0; b < local; b++) {
                if ((p == rank && a == b) || self.bus[b] != everyone[p].bus[a] || strcmp(host, everyone[p].host))
                    continue;
                printf("%s: Test NCCL failure common.cu:1242 'invalid usage (run with NCCL_DEBUG=WARN for details) / "
                       "Duplicate GPU detected : rank %d and rank %d both on CUDA device %llx'\n", host,
                       rank * local + b, p * local + a, (unsigned long long)self.bus[b]);
                fail(NCCL_ERROR, "common.cu:1376");
            }
    free(everyone);
}

static double get(const void *buffer, long i)
{
    switch (opt.type) {
    case 0: return ((const float *)buffer)[i];
    case 1: return ((const double *)buffer)[i];
    case 2: return ((const int32_t *)buffer)[i];
    default: return (double)((const int64_t *)buffer)[i];
    }
}

static void put(void *buffer, long i, double value)
{
    switch (opt.type) {
    case 0: ((float *)buffer)[i] = (float)value; break;
    case 1: ((double *)buffer)[i] = value; break;
    case 2: ((int32_t *)buffer)[i] = (int32_t)value; break;
    default: ((int64_t *)buffer)[i] = (int64_t)value; break;
    }
}

static MPI_Datatype mpi_type(void)
{
    return opt.type == 0 ? MPI_FLOAT : opt.type == 1 ? MPI_DOUBLE : opt.type == 2 ? MPI_INT32_T : MPI_INT64_T;
}

static MPI_Op mpi_op(void)
{
    return opt.op == PROD ? MPI_PROD : opt.op == MAX ? MPI_MAX : opt.op == MIN ? MPI_MIN : MPI_SUM;
}

/* What one GPU puts in at a place: small whole numbers, so that every order of adding gives the same. */
static double element(int gpu_rank, long i, int repeat)
{
    long mixed = (i % PERIOD) * 3 + gpu_rank * 7L + repeat;
    return opt.op == PROD ? (mixed % 2 ? -1.0 : 1.0) : (double)(mixed % 11);
}

static double combine(double a, double b)
{
    switch (opt.op) {
    case PROD: return a * b;
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    default: return a + b;
    }
}

static double mean(double value)
{
    if (opt.type >= 2)
        return (double)((int64_t)value / total);
    return opt.type == 0 ? (double)((float)value / (float)total) : value / (double)total;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void lag(double seconds)
{
    struct timespec pause;

    seconds = seconds < 0.0005 ? 0.0005 : seconds > 0.05 ? 0.05 : seconds;
    pause.tv_sec = 0;
    pause.tv_nsec = (long)(seconds * 1e9);
    nanosleep(&pause, NULL);
}

/* One all-reduce of count elements over all GPUs: those of this process first, then between the processes. */
static void all_reduce(long count, int in_place)
{
    double begin = now();
    size_t bytes = (size_t)count * types[opt.type].size;
    void *sum = recvs[0];

    if (local == 1 && !in_place) {
        MPI_Allreduce(sends[0], sum, (int)count, mpi_type(), mpi_op(), MPI_COMM_WORLD);
    } else {
        if (!in_place)
            memcpy(sum, sends[0], bytes);
        for (int g = 1; g < local; g++)
            MPI_Reduce_local(in_place ? recvs[g] : sends[g], sum, (int)count, mpi_type(), mpi_op());
        MPI_Allreduce(MPI_IN_PLACE, sum, (int)count, mpi_type(), mpi_op(), MPI_COMM_WORLD);
    }
    for (long i = 0; opt.op == AVG && i < count; i++)
        put(sum, i, mean(get(sum, i)));
    for (int g = 1; g < local; g++)
        memcpy(recvs[g], sum, bytes);
    if (slow)
        lag(2.0 * (now() - begin));
}

/* Elements that are wrong, over all GPUs, of one all-reduce with known data. */
static long long check_data(long count, int in_place, int repeat)
{
    double expected[PERIOD];
    long long wrong = 0, sum = 0;

    for (int g = 0; g < local; g++)
        for (long i = 0; i < count; i++) {
            put(sends[g], i, element(rank * local + g, i, repeat));
            put(recvs[g], i, in_place ? element(rank * local + g, i, repeat) : 0.0);
        }
    for (int k = 0; k < PERIOD; k++) {
        expected[k] = element(0, k, repeat);
        for (int r = 1; r < total; r++)
            expected[k] = combine(expected[k], element(r, k, repeat));
        if (opt.op == AVG)
            expected[k] = mean(expected[k]);
    }
    all_reduce(count, in_place);
    for (int g = 0; g < local; g++)
        for (long i = 0; i < count; i++)
            wrong += get(recvs[g], i) != expected[i % PERIOD];
    MPI_Allreduce(&wrong, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* A number in so many columns, with as many decimals as there is room for. */
static void fit(double value, int width, char *text)
{
    for (int decimals = 2; decimals >= 0; decimals--)
        if (snprintf(text, (size_t)width + 1, "%*.*f", width, decimals, value) <= width)
            return;
    snprintf(text, (size_t)width + 1, width >= 7 ? "%*.1e" : "%*.0e", width, value);
}

static double seconds_of_all(double seconds)
{
    double result = seconds;

    if (opt.average == AVERAGE_RANK0) {
        MPI_Bcast(&result, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        return result;
    }
    MPI_Allreduce(&seconds, &result, 1, MPI_DOUBLE, opt.average == AVERAGE_MEAN ? MPI_SUM :
                  opt.average == AVERAGE_MIN ? MPI_MIN : MPI_MAX, MPI_COMM_WORLD);
    return opt.average == AVERAGE_MEAN ? result / ranks : result;
}

/* Times one size in one mode and prints its four columns; returns the bus bandwidth, counts what was wrong. */
static double measure(long count, int in_place, long long *bad)
{
    static int repeat;
    char time_text[8], alg_text[7], bus_text[7];
    double seconds, algbw, busbw;
    long long wrong = 0;

    for (int g = 0; g < local; g++) {
        memset(sends[g], 0, (size_t)count * types[opt.type].size);
        memset(recvs[g], 0, (size_t)count * types[opt.type].size);
    }
    all_reduce(count, in_place);
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = now();
    for (int i = 0; i < opt.iters * opt.aggregate; i++)
        all_reduce(count, in_place);
    seconds = seconds_of_all((now() - seconds) / ((double)opt.iters * opt.aggregate));
    repeat++;
    for (int i = 0; i < opt.check && !wrong; i++)
        wrong = check_data(count, in_place, repeat + i);
    algbw = (double)count * (double)types[opt.type].size / 1e9 / (seconds > 0 ? seconds : 1e-9);
    busbw = algbw * 2.0 * (total - 1) / total;
    fit(seconds * 1e6, 7, time_text);
    fit(algbw, 6, alg_text);
    fit(busbw, 6, bus_text);
    if (rank == 0 && opt.check)
        printf("  %7s  %6s  %6s  %6g", time_text, alg_text, bus_text, (double)wrong);
    else if (rank == 0)
        printf("  %7s  %6s  %6s    N/A", time_text, alg_text, bus_text);
    *bad += wrong != 0;
    return busbw;
}

static void print_table_head(void)
{
    printf("#\n# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          \n", "", "", "",
           "", "");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "size", "count", "type", "redop", "root",
           "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)", "(elements)", "", "", "",
           "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

static long next_size(long size)
{
    long next = opt.factor > 1 ? size * opt.factor : size + opt.step_bytes;
    return next > size ? next : opt.max_bytes + 1;     /* a step of nothing: one size */
}

/* All sizes; returns the exit status. */
static int run(void)
{
    long width = (long)types[opt.type].size;
    double sum = 0;
    long long bad = 0;
    int values = 0;

    for (long size = opt.min_bytes; size <= opt.max_bytes; size = size ? size * 2 : opt.max_bytes + 1)
        for (int i = 0; i < opt.warmup; i++)
            all_reduce(size / width, 0);
    if (rank == 0)
        print_table_head();
    for (int cycle = 0; cycle < opt.cycles; cycle++)
        for (long size = opt.min_bytes; size <= opt.max_bytes; size = next_size(size)) {
            long count = size / width;
            if (rank == 0)
                printf("%12ld  %12ld  %8s  %6s  %6d", count * width, count, types[opt.type].name, ops[opt.op], -1);
            sum += measure(count, 0, &bad) + measure(count, 1, &bad);
            values += 2;
            if (rank == 0)
                printf("\n");
        }
    if (rank == 0)
        printf("# %-20s : %lld %s\n# %-20s : %g \n#\n# Collective test concluded: all_reduce_perf\n#\n",
               "Out of bounds values", bad, bad ? "FAILED" : "OK", "Avg bus bandwidth", values ? sum / values : 0.0);
    return bad ? WRONG_RESULTS : 0;
}

static void allocate(void)
{
    for (int g = 0; g < local; g++) {
        sends[g] = malloc((size_t)opt.max_bytes + 64);
        recvs[g] = malloc((size_t)opt.max_bytes + 64);
        if (!sends[g] || !recvs[g])
            cuda_failure("common.cu:1255", "out of memory");
        memset(sends[g], 0, (size_t)opt.max_bytes + 64);
        memset(recvs[g], 0, (size_t)opt.max_bytes + 64);
    }
}

static void find_local_rank(void)
{
    char (*hosts)[sizeof host] = malloc((size_t)ranks * sizeof host);

    if (!hosts)
        cuda_failure("common.cu:1350", "out of memory");
    MPI_Allgather(host, sizeof host, MPI_BYTE, hosts, sizeof host, MPI_BYTE, MPI_COMM_WORLD);
    for (int p = 0; p < rank; p++)
        local_rank += !strcmp(hosts[p], host);
    free(hosts);
}

int main(int argc, char **argv)
{
    int status;

    setlinebuf(stdout);
    parse_options(argc, argv);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);     /* far more ranks than CPUs */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
    memset(host + strlen(host), 0, sizeof host - strlen(host));
    total = ranks * local;
    find_local_rank();
    if (rank == 0)
        printf("%s\n# Collective test starting: all_reduce_perf\n"
               "# nThread %d nGpus %d minBytes %ld maxBytes %ld step: %ld(%s) warmup iters: %d iters: %d agg iters: %d "
               "validation: %d graph: 0\n#\n# Using devices\n", VERSION, opt.threads, opt.gpus, opt.min_bytes,
               opt.max_bytes, opt.factor > 1 ? opt.factor : opt.step_bytes, opt.factor > 1 ? "factor" : "bytes",
               opt.warmup, opt.iters, opt.aggregate, opt.check);
    find_visible();
    report_devices();
    if (opt.max_bytes > LARGEST_BYTES) {
        opt.max_bytes = LARGEST_BYTES;
        if (opt.min_bytes > opt.max_bytes)
            opt.min_bytes = opt.max_bytes;
        if (rank == 0)
            printf("#\n# Reducing maxBytes to %ld due to memory limitation\n", opt.max_bytes);
    }
    check_duplicates();
    allocate();
    status = run();
    for (int g = 0; g < local; g++) {
        free(sends[g]);
        free(recvs[g]);
    }
    MPI_Finalize();
    if (rank == 0)
        printf("\n");
    return status;
}
