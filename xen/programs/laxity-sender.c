/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sends UDP at given rates, one after the other, and says what became of it:
 *
 *   laxity-sender ADDRESS:PORT BYTES SECONDS:BIT_S ...
 *
 * BYTES are of a datagram's payload; rates count it with its headers, as on Ethernet. Packets are
 * due at regular times. What the system refuses because its queue is full is dropped, as a caller's
 * voice is, and counted. When all rates are through, or at an interrupt, it prints one JSON object:
 *
 *   sent, refused      packets
 *   sent_ns, refused_ns    CPU time of the calls that did either
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job.h"

#define HEADER_BYTES (14 + 20 + 8)
#define PAYLOAD_MAX 1472
#define STEPS_MAX 64
/* The shortest time between two sends: packets that are due meanwhile go together. */
#define TICK_NS (1000 * 1000)

struct step {
    double seconds;
    double bit_s;
};

struct counts {
    uint64_t sent, refused;
    int64_t sent_ns, refused_ns;
};

static volatile sig_atomic_t is_over;

static void end(int number)
{
    (void)number;
    is_over = true;
}

static int refuse(const char *what, const char *given)
{
    fprintf(stderr,
            "laxity-sender: error: \"%s\" is no %s; give ADDRESS:PORT BYTES SECONDS:BIT_S ...\n",
            given, what);
    return 2;
}

static bool parse_address(const char *text, struct sockaddr_in *address)
{
    char ip[INET_ADDRSTRLEN];
    unsigned port;
    int length = 0;
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    if (sscanf(text, "%15[0-9.]:%5u%n", ip, &port, &length) != 2 || text[length] || port > 65535)
        return false;
    address->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, ip, &address->sin_addr) == 1;
}

static bool parse_step(const char *text, struct step *step)
{
    int length = 0;
    return sscanf(text, "%lf:%lf%n", &step->seconds, &step->bit_s, &length) == 2 && !text[length] &&
           step->seconds > 0 && step->bit_s >= 0;
}

static void send_packet(int any_socket, const struct sockaddr_in *to, size_t bytes,
                        struct counts *counts)
{
    static const char payload[PAYLOAD_MAX];
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    bool good = sendto(any_socket, payload, bytes, MSG_DONTWAIT, (const struct sockaddr *)to,
                       sizeof *to) == (ssize_t)bytes;
    int64_t took_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    *(good ? &counts->sent : &counts->refused) += 1;
    *(good ? &counts->sent_ns : &counts->refused_ns) += took_ns;
}

/* Sends what is due of a step that began at that instant, tick by tick. */
static void run_step(int any_socket, const struct sockaddr_in *to, size_t bytes,
                     const struct step *step, int64_t start_ns, struct counts *counts)
{
    double packets_s = step->bit_s / (8.0 * (double)(bytes + HEADER_BYTES));
    int64_t end_ns = start_ns + (int64_t)(step->seconds * 1e9);
    uint64_t done = 0;
    for (int64_t now_ns = start_ns; !is_over && now_ns < end_ns;) {
        struct timespec pause = {.tv_nsec = TICK_NS};
        uint64_t due = (uint64_t)((double)(now_ns - start_ns) * packets_s / 1e9);
        for (; done < due && !is_over; done++)
            send_packet(any_socket, to, bytes, counts);
        nanosleep(&pause, NULL);
        now_ns = clock_ns(CLOCK_MONOTONIC);
    }
}

int main(int count, char **words)
{
    struct sockaddr_in to;
    struct step steps[STEPS_MAX];
    struct counts counts = {0};
    if (count < 4 || count - 3 > STEPS_MAX)
        return refuse("list of rates", count < 4 ? "" : words[count - 1]);
    if (!parse_address(words[1], &to))
        return refuse("ADDRESS:PORT", words[1]);
    char *rest;
    unsigned long bytes = strtoul(words[2], &rest, 10);
    if (*rest || bytes < 1 || bytes > PAYLOAD_MAX)
        return refuse("number of bytes from 1 to 1472", words[2]);
    for (int i = 3; i < count; i++)
        if (!parse_step(words[i], &steps[i - 3]))
            return refuse("SECONDS:BIT_S", words[i]);

    int any_socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (any_socket < 0) {
        fprintf(stderr, "laxity-sender: error: no socket can be made: %s\n", strerror(errno));
        return 1;
    }
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGINT, &action, NULL);
    int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < count - 3; i++) {
        run_step(any_socket, &to, bytes, &steps[i], start_ns, &counts);
        start_ns += (int64_t)(steps[i].seconds * 1e9);
    }
    printf("{\"sent\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"sent_ns\": %" PRId64
           ", \"refused_ns\": %" PRId64 "}\n",
           counts.sent, counts.refused, counts.sent_ns, counts.refused_ns);
    return 0;
}
