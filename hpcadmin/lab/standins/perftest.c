/* Stand-in for perftest on nodes with simulated HCAs: a real transfer over TCP between server and client, with perftest's
 * command line and tables. What is printed is what TCP carried between the two hosts. Its name says which program it is:
 * ib_write_bw, ib_read_bw (the server sends), ib_send_bw, ib_write_lat, ib_send_lat (messages go back and forth).
 *
 * Both sides run the same protocol on one connection. A frame is a kind (one byte), a length (three bytes) and so many
 * bytes: DATA, END (the sender is done), ACK (the reader has it all; only then does the sender's clock stop) and RESULT
 * (the sender's values, so that the other prints them). One way: the client sends, or the server of a read. Both ways
 * (-b): both send. Latency: DATA is answered with DATA.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "simhw.h"

#define RULE "---------------------------------------------------------------------------------------\n"
#define MAX_FRAME (1 << 20)
#define LARGEST_MESSAGE (8L << 20)
#define QUIET_SECONDS 60              /* so long may a peer say nothing */

enum kind { DATA = 1, END, ACK, RESULT };

static struct {
    char device[64];
    const char *server;
    int ib_port, port, qps, depth, duration, gid, mtu, gbits, both, all;
    long size, iters;
} opt = {.ib_port = 1, .port = 18515, .qps = 1, .depth = 128, .gid = -1, .mtu = 4096, .size = 65536, .iters = 5000};

enum verb { WRITE, READ, SEND };
static enum verb verb = WRITE;
static int latency;

struct address { unsigned lid, qpn, psn, rkey; unsigned long long vaddr; };
struct result { unsigned long long messages; double seconds; };

static struct {
    int socket;
    pthread_mutex_t writing;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int failed, acked, told;          /* told: the peer's RESULT is there */
    unsigned long long received;
    struct result peer;
} link_ = {.writing = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static unsigned char buffer[MAX_FRAME];

static void die(const char *text)
{
    fflush(stdout);
    fputs(text, stderr);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What the program is, from its name. */
static void take_name(const char *path)
{
    const char *name = strrchr(path, '/');

    name = name ? name + 1 : path;
    verb = strstr(name, "_read_") ? READ : strstr(name, "_send_") ? SEND : WRITE;
    latency = strstr(name, "_lat") != NULL;
    if (latency) {
        opt.size = 2;
        opt.iters = 1000;
    }
}

/* Whether this side sends data in a test of bandwidth. */
static int sends(void)
{
    return opt.both || (verb == READ ? !opt.server : opt.server != NULL);
}

/* --- the command line */

static long number(const char *text, long least, long most)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 0);
    if (errno || end == text || *end || value < least || value > most) {
        fprintf(stderr, " Invalid value '%s'\n", text);
        exit(1);
    }
    return value;
}

static long size_number(const char *text)
{
    char digits[24];
    size_t length = strlen(text);
    long scale = 1;

    if (length && length < sizeof digits) {
        memcpy(digits, text, length + 1);
        if (strchr("kK", digits[length - 1]))
            scale = 1L << 10;
        else if (strchr("mM", digits[length - 1]))
            scale = 1L << 20;
        if (scale > 1)
            digits[length - 1] = 0;
        return number(digits, 1, LARGEST_MESSAGE / scale) * scale;
    }
    return number(text, 1, LARGEST_MESSAGE);
}

static void usage(const char *program)
{
    printf("Usage:\n  %s            start a server and wait for connection\n"
           "  %s <host>     connect to server at <host>\n\nOptions:\n"
           "  -d, --ib-dev=<dev>  -i, --ib-port=<port>  -s, --size=<size>  -D, --duration=<s>  -n, --iters=<iters>\n"
           "  -q, --qp=<num>  -p, --port=<port>  -x, --gid-index=<index>  -m, --mtu=<mtu>  -t, --tx-depth=<dep>\n"
           "  -a, --all  -b, --bidirectional  -F, --CPU-freq  -V, --version  --report_gbits\n", program, program);
}

static void parse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"ib-dev", 1, 0, 'd'}, {"ib-port", 1, 0, 'i'}, {"size", 1, 0, 's'}, {"duration", 1, 0, 'D'}, {"iters", 1, 0, 'n'},
        {"qp", 1, 0, 'q'}, {"port", 1, 0, 'p'}, {"gid-index", 1, 0, 'x'}, {"mtu", 1, 0, 'm'}, {"tx-depth", 1, 0, 't'},
        {"all", 0, 0, 'a'}, {"bidirectional", 0, 0, 'b'}, {"CPU-freq", 0, 0, 'F'}, {"version", 0, 0, 'V'},
        {"report_gbits", 0, 0, 1}, {"sl", 1, 0, 'S'}, {"cq-mod", 1, 0, 'Q'}, {"qp-timeout", 1, 0, 'u'},
        {"inline_size", 1, 0, 'I'}, {"noPeak", 0, 0, 'N'}, {"connection", 1, 0, 'c'}, {"rdma_cm", 0, 0, 'R'},
        {"perform_warm_up", 0, 0, 2}, {"disable_pcie_relaxed", 0, 0, 2}, {"help", 0, 0, 'h'}, {0, 0, 0, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "d:i:s:D:n:q:p:x:m:t:S:Q:u:I:c:abFNRVh", names, NULL)) != -1) {
        switch (c) {
        case 'd':
            if (strlen(optarg) >= sizeof opt.device || strchr(optarg, '/') || optarg[0] == '.')
                die(" Invalid device name\n");
            memcpy(opt.device, optarg, strlen(optarg) + 1);
            break;
        case 'i': opt.ib_port = (int)number(optarg, 1, 254); break;
        case 's': opt.size = size_number(optarg); break;
        case 'D': opt.duration = (int)number(optarg, 1, 86400); break;
        case 'n': opt.iters = number(optarg, 5, 100000000); break;
        case 'q': opt.qps = (int)number(optarg, 1, 16384); break;
        case 'p': opt.port = (int)number(optarg, 1, 65535); break;
        case 'x': opt.gid = (int)number(optarg, 0, 255); break;
        case 'm': opt.mtu = (int)number(optarg, 256, 4096); break;
        case 't': opt.depth = (int)number(optarg, 1, 16384); break;
        case 'a': opt.all = 1; break;
        case 'b': opt.both = 1; break;
        case 1: opt.gbits = 1; break;
        case 'c':
            if (strcmp(optarg, "RC"))
                die(" Invalid Connection type. Only RC is simulated\n");
            break;
        case 'S': case 'Q': case 'u': case 'I': case 'F': case 'N': case 'R': case 2: break;
        case 'V': printf("Version: 6.06\n"); exit(0);
        case 'h': usage(argv[0]); exit(0);
        default:
            fputs(" Invalid Command or flag.\n Please check command line and run again.\n\n", stderr);
            usage(argv[0]);
            exit(1);
        }
    }
    if (optind < argc - 1)
        die(" Invalid Command line. Please check command rerun \n");
    if (latency && (opt.duration || opt.both))
        die(" Only a number of iterations is simulated\n");
    if (opt.all && opt.duration)
        die(" run_all_sizes (-a) mode is not supported with duration (-D)\n");
    opt.server = optind < argc ? argv[optind] : NULL;
}

/* --- the simulated HCA */

static int device_file(const char *name, char *text, size_t room)
{
    char path[4096];
    FILE *file;
    int good;

    if (snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/%s", sim_path("HPCADMIN_SIM_DIR", "/etc/hpcadmin/sim"),
                 opt.device, name) >= (int)sizeof path)
        return 0;
    file = fopen(path, "re");
    if (!file)
        return 0;
    good = fgets(text, (int)room, file) != NULL;
    fclose(file);
    if (good)
        text[strcspn(text, "\n")] = 0;
    return good;
}

static void find_device(void)
{
    char path[4096], text[128], name[64];
    DIR *folder;
    struct dirent *entry;
    char first[64] = "";

    snprintf(path, sizeof path, "%s/sys/class/infiniband", sim_path("HPCADMIN_SIM_DIR", "/etc/hpcadmin/sim"));
    folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] != '.' && length < sizeof first && (!first[0] || strcmp(entry->d_name, first) < 0))
            memcpy(first, entry->d_name, length + 1);
    }
    if (folder)
        closedir(folder);
    if (!first[0])
        die(" Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n");
    if (!opt.device[0])
        memcpy(opt.device, first, sizeof first);
    if (!device_file("node_guid", text, sizeof text)) {
        fprintf(stderr, "IB device %s not found\n", opt.device);
        die(" Unable to find the Infiniband/RoCE device\n");
    }
    snprintf(name, sizeof name, "ports/%d/state", opt.ib_port);
    if (!device_file(name, text, sizeof text)) {
        fprintf(stderr, " Unable to query port %d attributes\n", opt.ib_port);
        die(" Couldn't get context for the device\n");
    }
    if (strncmp(text, "4:", 2)) {
        fprintf(stderr, " Port number %d state is %s\n", opt.ib_port, strncmp(text, "1:", 2) ? "not Active" : "Down");
        die(" Couldn't set the link layer\n Couldn't get context for the device\n");
    }
}

static struct address own_address(void)
{
    char text[64], name[64];
    struct address self;
    unsigned mix = (unsigned)getpid() * 2654435761u ^ (unsigned)time(NULL);

    snprintf(name, sizeof name, "ports/%d/lid", opt.ib_port);
    self.lid = device_file(name, text, sizeof text) ? (unsigned)strtoul(text, NULL, 0) & 0xffff : 0;
    self.qpn = mix & 0xffff;
    self.psn = (mix >> 8) & 0xffffff;
    self.rkey = (mix * 40503u) & 0x1fffff;
    self.vaddr = 0x7f0000000000ULL + ((unsigned long long)(mix & 0xfffffff) << 12);
    return self;
}

/* --- frames */

static int write_all(const void *data, size_t length)
{
    const char *at = data;

    while (length) {
        ssize_t done = send(link_.socket, at, length, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        length -= (size_t)done;
    }
    return 1;
}

static int read_all(void *data, size_t length)
{
    char *at = data;

    while (length) {
        ssize_t done = recv(link_.socket, at, length, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        length -= (size_t)done;
    }
    return 1;
}

static int write_frame(enum kind kind, const void *data, size_t length)
{
    uint32_t head = htonl((uint32_t)kind << 24 | (uint32_t)length);
    int good;

    pthread_mutex_lock(&link_.writing);
    good = write_all(&head, sizeof head) && (!length || write_all(data, length));
    pthread_mutex_unlock(&link_.writing);
    return good;
}

static int handle_frame(enum kind kind, const unsigned char *data, size_t length)
{
    int good = 1;

    pthread_mutex_lock(&link_.lock);
    if (kind == DATA) {
        link_.received += length;
    } else if (kind == ACK) {
        link_.acked = 1;
    } else if (kind == RESULT && length == sizeof link_.peer) {
        memcpy(&link_.peer, data, sizeof link_.peer);
        link_.told = 1;
    } else {
        good = kind == END;
    }
    pthread_cond_broadcast(&link_.changed);
    pthread_mutex_unlock(&link_.lock);
    return good && (kind != END || write_frame(ACK, NULL, 0));
}

/* The peer has told its result and, where this side sends, has all of it: nothing more comes for this size. */
static int finished(void)
{
    int done;

    pthread_mutex_lock(&link_.lock);
    done = link_.told && (link_.acked || !sends());
    pthread_mutex_unlock(&link_.lock);
    return done;
}

/* Reads frames until this size is finished or the connection breaks. */
static void *reader(void *unused)
{
    static unsigned char data[MAX_FRAME];
    uint32_t head;
    size_t length;

    for (;;) {
        if (!read_all(&head, sizeof head))
            break;
        head = ntohl(head);
        length = head & 0xffffff;
        if (length > sizeof data || !read_all(data, length) || !handle_frame((enum kind)(head >> 24), data, length))
            break;
        if (finished())
            return unused;
    }
    pthread_mutex_lock(&link_.lock);
    link_.failed = 1;
    pthread_cond_broadcast(&link_.changed);
    pthread_mutex_unlock(&link_.lock);
    return unused;
}

static int wait_for(const int *flag)
{
    int good;

    pthread_mutex_lock(&link_.lock);
    while (!*flag && !link_.failed)
        pthread_cond_wait(&link_.changed, &link_.lock);
    good = *flag;
    pthread_mutex_unlock(&link_.lock);
    return good;
}

static int send_messages(long size, long count)
{
    for (long left = size * count; left > 0;) {
        long part = left > MAX_FRAME ? MAX_FRAME : left;
        if (!write_frame(DATA, buffer, (size_t)part))
            return 0;
        left -= part;
    }
    return 1;
}

/* Sends messages of one size for the time or the number asked for; 0 when the connection broke. */
static int transmit(long size, struct result *result)
{
    long batch = MAX_FRAME / 8 / size;
    unsigned long long wanted = (unsigned long long)opt.iters * (unsigned long long)opt.qps;
    double begin = now();

    batch = batch < 1 ? 1 : batch > opt.depth ? opt.depth : batch;
    while (opt.duration ? now() - begin < opt.duration : result->messages < wanted) {
        long count = batch;
        if (!opt.duration && wanted - result->messages < (unsigned long long)count)
            count = (long)(wanted - result->messages);
        if (!send_messages(size, count))
            return 0;
        result->messages += (unsigned long long)count;
    }
    if (!write_frame(END, NULL, 0) || !wait_for(&link_.acked))
        return 0;
    result->seconds = now() - begin;
    return 1;
}

/* --- one size, printed */

static void print_row(long size, struct result own, struct result peer)
{
    double unit = opt.gbits ? 1e9 / 8 : 1 << 20, rate = 0;

    if (own.seconds > 0)
        rate += (double)own.messages / own.seconds;
    if (peer.seconds > 0)
        rate += (double)peer.messages / peer.seconds;
    /* A peak over less than the whole would only show how fast a socket buffer fills. */
    printf(" %-7ld    %-10llu       %-7.2f            %-7.2f\t\t   %-7.6f\n", size, own.messages + peer.messages,
           opt.duration ? 0.0 : rate * (double)size / unit, rate * (double)size / unit, rate / 1e6);
}

static void measure(long size)
{
    struct result own = {0, 0};
    pthread_t thread;
    int good = 1;

    link_.acked = link_.told = 0;
    link_.received = 0;
    if (pthread_create(&thread, NULL, reader, NULL))
        die(" Couldn't create thread\n");
    if (sends())
        good = transmit(size, &own);
    /* The server tells its result last: its reader has then seen the client's. */
    if (good && opt.server)
        good = write_frame(RESULT, &own, sizeof own) && wait_for(&link_.told);
    else if (good)
        good = wait_for(&link_.told) && write_frame(RESULT, &own, sizeof own);
    if (!good) {
        shutdown(link_.socket, SHUT_RDWR);
        pthread_join(thread, NULL);
        die(" Completion with error\n Failed status 12: wr_id 0 syndrom 0x81\n");
    }
    pthread_join(thread, NULL);
    if (link_.peer.messages && link_.received != link_.peer.messages * (unsigned long long)size)
        die(" Failed to exchange data between server and clients\n");
    print_row(size, own, link_.peer);
}

/* --- latency */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int receive_message(long size)
{
    static unsigned char data[MAX_FRAME];
    uint32_t head;

    for (long left = size; left > 0;) {
        if (!read_all(&head, sizeof head))
            return 0;
        head = ntohl(head);
        if (head >> 24 != DATA || (long)(head & 0xffffff) > left || !read_all(data, head & 0xffffff))
            return 0;
        left -= (long)(head & 0xffffff);
    }
    return 1;
}

/* Half of each round trip, as this side sees it. A round trip of the server begins with its answer. */
static void measure_latency(long size)
{
    double *half = calloc((size_t)opt.iters, sizeof *half), sum = 0, squares = 0, average, before = now();
    int good = half != NULL;

    if (good && !opt.server)
        good = receive_message(size);
    for (long i = 0; good && i < opt.iters; i++) {
        before = now();
        good = send_messages(size, 1) && ((!opt.server && i == opt.iters - 1) || receive_message(size));
        half[i] = (now() - before) * 5e5;
        if (!opt.server && i == opt.iters - 1)      /* nothing comes after the last answer */
            half[i] = half[i ? i - 1 : 0];
        sum += half[i];
    }
    if (!good)
        die(" Completion with error\n Failed status 12: wr_id 0 syndrom 0x81\n");
    average = sum / (double)opt.iters;
    for (long i = 0; i < opt.iters; i++)
        squares += (half[i] - average) * (half[i] - average);
    qsort(half, (size_t)opt.iters, sizeof *half, by_value);
    printf(" %-7ld %ld          %-7.2f        %-7.2f      %-7.2f\t     %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f\n", size,
           opt.iters, half[0], half[opt.iters - 1], half[opt.iters / 2], average, sqrt(squares / (double)opt.iters),
           half[opt.iters * 99 / 100], half[opt.iters * 999 / 1000]);
    free(half);
}

/* --- connection and tables */

static void listen_and_accept(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    int waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    any.sin_addr.s_addr = htonl(INADDR_ANY);
    if (waiting < 0)
        die(" Unable to open file descriptor for socket connection\n");
    setsockopt(waiting, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(waiting, (struct sockaddr *)&any, sizeof any) || listen(waiting, 1)) {
        fprintf(stderr, "Couldn't listen to port %d\n", opt.port);
        die("Unable to open file descriptor for socket connection Unable to init the socket connection\n");
    }
    do
        link_.socket = accept(waiting, NULL, NULL);
    while (link_.socket < 0 && errno == EINTR);
    if (link_.socket < 0)
        die("accept() failed\n Unable to init the socket connection\n");
    close(waiting);
}

static void connect_to_server(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found, *one;
    char service[8];
    int error;

    snprintf(service, sizeof service, "%u", (unsigned)(uint16_t)opt.port);
    error = getaddrinfo(opt.server, service, &hints, &found);
    if (error) {
        fprintf(stderr, "%s for %s:%d\n", gai_strerror(error), opt.server, opt.port);
        die("Unable to open file descriptor for socket connection Unable to init the socket connection\n");
    }
    link_.socket = -1;
    for (one = found; one && link_.socket < 0; one = one->ai_next) {
        link_.socket = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
        if (link_.socket >= 0 && connect(link_.socket, one->ai_addr, one->ai_addrlen)) {
            close(link_.socket);
            link_.socket = -1;
        }
    }
    freeaddrinfo(found);
    if (link_.socket < 0) {
        fprintf(stderr, "Couldn't connect to %s:%d\n", opt.server, opt.port);
        die("Unable to open file descriptor for socket connection Unable to init the socket connection\n");
    }
}

/* Both sides must want the same test; each learns the other's address. */
static struct address exchange(struct address self)
{
    char line[160] = "", answer[160];
    long values[5];
    struct address peer;

    snprintf(line, sizeof line, "%x %x %x %x %llx %ld %ld %d %d %d", self.lid, self.qpn, self.psn, self.rkey, self.vaddr,
             opt.size, opt.iters, opt.duration, opt.both, opt.all);
    if (!write_all(line, sizeof line) || !read_all(answer, sizeof answer))
        die("ethernet_read_keys: Couldn't read remote address\n Failed to exchange data between server and clients\n");
    answer[sizeof answer - 1] = 0;
    if (sscanf(answer, "%x %x %x %x %llx %ld %ld %ld %ld %ld", &peer.lid, &peer.qpn, &peer.psn, &peer.rkey, &peer.vaddr,
               &values[0], &values[1], &values[2], &values[3], &values[4]) != 10 ||
        values[0] != opt.size || values[1] != opt.iters || values[2] != opt.duration || values[3] != opt.both ||
        values[4] != opt.all)
        die("Couldn't parse line\n Failed to exchange data between server and clients\n");
    return peer;
}

static void print_head(void)
{
    if (opt.duration && !latency)
        printf("WARNING: BW peak won't be measured in this run.\n");
    printf(RULE "                    %s %s%s Test\n", verb == SEND ? "Send" : verb == READ ? "RDMA_Read" : "RDMA_Write",
           opt.both ? "Bidirectional " : "", latency ? "Latency" : "BW");
    printf(" Dual-port       : OFF\t\tDevice         : %s\n", opt.device);
    printf(" Number of qps   : %d\t\tTransport type : IB\n", opt.qps);
    printf(" Connection type : RC\t\tUsing SRQ      : OFF\n");
    printf(" PCIe relax order: ON\t\tLock-free      : OFF\n ibv_wr* API     : ON\t\tUsing Enhanced Reorder      : OFF\n");
    if (opt.server || opt.both)
        printf(" TX depth        : %d\n", latency ? 1 : opt.depth);
    if (!latency)
        printf(" CQ Moderation   : 1\n CQE Poll Batch  : Dynamic\n");
    printf(" Mtu             : %d[B]\n Link type       : IB\n", opt.mtu);
    if (opt.gid >= 0)
        printf(" GID index       : %d\n", opt.gid);
    printf(verb == READ ? " Outstand reads  : 16\n" : " Max inline data : 0[B]\n");
    printf(" rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n" RULE);
}

static void print_address(const char *whose, struct address one)
{
    for (int i = 0; i < opt.qps; i++)
        printf(" %s address: LID %#04x QPN %#06x PSN %#06x RKey %#08x VAddr %#018llx\n", whose, one.lid,
               (one.qpn + (unsigned)i) & 0xffff, one.psn, one.rkey, one.vaddr);
}

int main(int argc, char **argv)
{
    struct timeval quiet = {0, 0};
    struct address self, peer;
    int yes = 1;

    signal(SIGPIPE, SIG_IGN);
    take_name(argv[0]);
    parse_options(argc, argv);
    find_device();
    self = own_address();
    if (opt.server) {
        connect_to_server();
    } else {
        printf("\n************************************\n* Waiting for client to connect... *\n"
               "************************************\n");
        listen_and_accept();
    }
    quiet.tv_sec = QUIET_SECONDS + opt.duration;
    setsockopt(link_.socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(link_.socket, SOL_SOCKET, SO_RCVTIMEO, &quiet, sizeof quiet);
    setsockopt(link_.socket, SOL_SOCKET, SO_SNDTIMEO, &quiet, sizeof quiet);
    print_head();
    print_address("local", self);
    peer = exchange(self);
    print_address("remote", peer);
    if (latency)
        printf(RULE " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
               "99%% percentile[usec]   99.9%% percentile[usec] \n");
    else
        printf(RULE " #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n",
               opt.gbits ? "Gb/sec" : "MB/sec", opt.gbits ? "Gb/sec" : "MB/sec");
    for (long size = opt.all ? 2 : opt.size; size <= (opt.all ? LARGEST_MESSAGE : opt.size); size *= 2)
        (latency ? measure_latency : measure)(size);
    printf(RULE);
    close(link_.socket);
    return 0;
}
