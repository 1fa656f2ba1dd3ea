/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The only process of a guest that somebody protects: it counts, and says every number once to all
 * who listen on its network, as UDP to port 7077. A listener outside thus knows how far the
 * guest had come when a frame left, whether it was ever set back, and how long it stood still: the
 * guest looks at a clock that goes on while it does, and says what lay longest between two looks.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

#define ADDRESS "192.0.2.10/24"
#define LISTENERS "192.0.2.255"
#define PORT 7077
#define LOOK_EVERY_NS (10 * 1000 * 1000)
#define LOOKS_A_NUMBER 10
/* How often the console hears of it. */
#define SAID_EVERY 20
#define NS_PER_S INT64_C(1000000000)

/* On the wire: a magic word, and 64 bits each, big endian. */
struct said {
    char magic[8];
    uint64_t number;
    uint64_t now_ns;
    uint64_t longest_ns;
};

/* A suspended guest's monotonic clock stands still, this one is set forward. */
static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int main(void)
{
    struct failure failure = {0};
    if (!network_up("/modules", ADDRESS, &failure)) {
        printf("laxity-counter: %s\n", failure.text);
        pause();
    }
    int any_socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    inet_pton(AF_INET, LISTENERS, &to.sin_addr);
    setsockopt(any_socket, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    int64_t looked_ns = now_ns();
    for (uint64_t number = 1;; number++) {
        int64_t longest_ns = 0;
        for (int look = 0; look < LOOKS_A_NUMBER; look++) {
            nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_NS}, NULL);
            int64_t before_ns = looked_ns;
            looked_ns = now_ns();
            if (looked_ns - before_ns > longest_ns)
                longest_ns = looked_ns - before_ns;
        }
        struct said said = {.magic = "LAXITYCT",
                            .number = htobe64(number),
                            .now_ns = htobe64((uint64_t)looked_ns),
                            .longest_ns = htobe64((uint64_t)longest_ns)};
        sendto(any_socket, &said, sizeof said, MSG_DONTWAIT, (const struct sockaddr *)&to,
               sizeof to);
        if (number % SAID_EVERY == 0) {
            printf("laxity-counter: %" PRIu64 "\n", number);
            fflush(stdout);
        }
    }
}
