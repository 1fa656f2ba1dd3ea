/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The only process of a guest that somebody protects: it counts, and says every number once to all
 * who listen on its network, as UDP to port 7077: a magic word and the number, 64 bits, big endian.
 * So who listens outside knows how far the guest had come when a frame left, and whether it was
 * ever set back.
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
#define INTERVAL_NS (100 * 1000 * 1000)
/* How often the console hears of it. */
#define SAID_EVERY 20

struct said {
    char magic[8];
    uint64_t number;
};

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
    for (uint64_t number = 1;; number++) {
        struct said said = {.magic = "LAXITYCT", .number = htobe64(number)};
        struct timespec interval = {.tv_nsec = INTERVAL_NS};
        sendto(any_socket, &said, sizeof said, MSG_DONTWAIT, (const struct sockaddr *)&to,
               sizeof to);
        if (number % SAID_EVERY == 0) {
            printf("laxity-counter: %" PRIu64 "\n", number);
            fflush(stdout);
        }
        nanosleep(&interval, NULL);
    }
}
