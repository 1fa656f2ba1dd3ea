// The guest of protection's tests, its only process: it counts what it is asked, and answers with the count.
//
// A request is a number of 8 bytes, by UDP or in a TCP connection, on port 7. The answer is that
// number, the count after it, and 0 if the guest's memory is what it should be (8 bytes each, as
// they stand in memory here). A guest that goes on from an older state than somebody has seen gives
// the same count twice; one that goes on from halves of two states finds that its memory is none
// that it ever had: each count is written to a page of its own, in turn, and before it is
// overwritten it must be what was written there last.
//
// With a disk, each count is in the disk's store (store.h) before it is answered. A guest that boots
// goes on from the highest count of its store.
//
// The kernel's command line gives what it gives to every first process: address=192.0.2.10, disk=/dev/vda and, for a
// guest that is to be busy, dirty=PAGES, written to every 10 ms.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "store.h"

enum { PORT = 7, SLOTS = 512, CONNECTIONS_MAX = 60, DIRTY_PERIOD_MS = 10 };

// Requests that count nothing: to end, and to look at everything in the store.
static const uint64_t POWER_OFF = UINT64_MAX, CHECK = UINT64_MAX - 1;

struct answer {
    uint64_t request, count, is_wrong;
};

static uint64_t count;
static uint8_t (*slots)[PAGE_BYTES];
static uint64_t is_wrong;
// The count at the guest's boot, and whether it has a disk.
static uint64_t begun;
static int has_disk;

void fail(const char *what)
{
    printf("counter: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    reboot(RB_POWER_OFF);
}

void *pages(size_t how_many)
{
    void *at = mmap(NULL, how_many * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        fail("memory");
    return at;
}

void drop_caches(void)
{
    int file = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

    sync();
    if (file < 0 || write(file, "3", 1) != 1)
        fail("drop_caches");
    close(file);
}

static struct answer answer(uint64_t request)
{
    uint64_t *slot, before;

    if (request == POWER_OFF)
        reboot(RB_POWER_OFF);
    if (request == CHECK) {
        is_wrong += has_disk ? wrong_in_store(count) : 0;
        return (struct answer){request, count, is_wrong};
    }
    count++;
    slot = (uint64_t *)slots[count % SLOTS];
    before = count > begun + SLOTS ? count - SLOTS : 0;
    // The count stands at both ends of the page, and in its middle.
    if (slot[0] != before || slot[255] != before || slot[511] != before)
        is_wrong++;
    slot[0] = slot[255] = slot[511] = count;
    if (has_disk)
        is_wrong += store(count, request);
    return (struct answer){request, count, is_wrong};
}

static void load_modules(void)
{
    char path[32];

    for (int number = 0;; number++) {
        snprintf(path, sizeof path, "/modules/%d.ko", number);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            return;
        if (syscall(SYS_finit_module, file, "", 0) < 0)
            fail(path);
        close(file);
    }
}

static void set_address(const char *name, const char *address)
{
    struct ifreq request = {0};
    struct sockaddr_in *to = (struct sockaddr_in *)&request.ifr_addr;
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    to->sin_family = AF_INET;
    if (inet_pton(AF_INET, address, &to->sin_addr) != 1 || ioctl(any, SIOCSIFADDR, &request) < 0)
        fail("address");
    inet_pton(AF_INET, "255.255.255.0", &to->sin_addr);
    if (ioctl(any, SIOCSIFNETMASK, &request) < 0)
        fail("netmask");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(any, SIOCSIFFLAGS, &request) < 0)
        fail("interface");
    close(any);
}

static int listen_on(int kind)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int yes = 1, made = socket(AF_INET, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(made, (struct sockaddr *)&at, sizeof at) < 0 || (kind == SOCK_STREAM && listen(made, 16) < 0))
        fail("socket");
    return made;
}

// Answers one datagram, so that connections have their turn however many come. A client repeats its
// request every few milliseconds until it hears something, and a slow guest would count repetitions
// only: what repeats the last request has its answer again.
static void serve_datagram(int datagrams)
{
    static struct sockaddr_in last_from;
    static struct answer said;
    struct sockaddr_in from = {0};
    socklen_t length = sizeof from;
    uint64_t request;

    if (recvfrom(datagrams, &request, sizeof request, 0, (struct sockaddr *)&from, &length) != sizeof request)
        return;
    if (request != said.request || memcmp(&from, &last_from, sizeof from) != 0)
        said = answer(request);
    last_from = from;
    sendto(datagrams, &said, sizeof said, 0, (struct sockaddr *)&from, length);
}

// Whether the connection goes on.
static int serve_connection(int connection)
{
    uint64_t request;
    ssize_t got = recv(connection, &request, sizeof request, MSG_PEEK | MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN))
        return 0;
    // The rest of it comes.
    if (got < (ssize_t)sizeof request)
        return 1;
    recv(connection, &request, sizeof request, 0);
    struct answer said = answer(request);
    return send(connection, &said, sizeof said, MSG_NOSIGNAL) == sizeof said;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void)
{
    struct pollfd polled[2 + CONNECTIONS_MAX];
    nfds_t used = 2;
    const char *address = getenv("address"), *dirty = getenv("dirty");
    size_t dirty_pages = dirty ? strtoul(dirty, NULL, 10) : 0;
    uint8_t(*busy)[PAGE_BYTES] = dirty_pages ? pages(dirty_pages) : NULL;
    int64_t due_ms = now_ms();

    slots = pages(SLOTS);
    load_modules();
    if (getenv("disk")) {
        if (mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) < 0)
            fail("/dev");
        // The kernel looks for SCSI disks while it goes on.
        while (access(getenv("disk"), F_OK) < 0)
            usleep(1000);
        count = begun = open_store(getenv("disk"));
        has_disk = 1;
    }
    set_address("lo", "127.0.0.1");
    set_address("eth0", address ? address : "192.0.2.10");
    polled[0] = (struct pollfd){listen_on(SOCK_DGRAM), POLLIN, 0};
    polled[1] = (struct pollfd){listen_on(SOCK_STREAM), POLLIN, 0};
    printf("counter: ready\n");
    fflush(stdout);
    for (uint64_t round = 1;; round++) {
        int64_t left_ms = due_ms - now_ms();
        poll(polled, used, busy ? (left_ms < 0 ? 0 : (int)left_ms) : -1);
        if (polled[0].revents)
            serve_datagram(polled[0].fd);
        if (polled[1].revents && used < 2 + CONNECTIONS_MAX) {
            int connection = accept4(polled[1].fd, NULL, NULL, SOCK_CLOEXEC);
            if (connection >= 0)
                polled[used++] = (struct pollfd){connection, POLLIN, 0};
        }
        for (nfds_t at = 2; at < used; at++) {
            if (polled[at].revents && !serve_connection(polled[at].fd)) {
                close(polled[at].fd);
                polled[at--] = polled[--used];
            }
        }
        if (busy && now_ms() >= due_ms) {
            for (size_t page = 0; page < dirty_pages; page++)
                *(uint64_t *)&busy[page][round * 8 % PAGE_BYTES] = round;
            due_ms = now_ms() + DIRTY_PERIOD_MS;
        }
    }
}
