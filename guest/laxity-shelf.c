/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Puts its standard input on the shelf: the memory that the emulated machine shares with the lab
 * outside, an ivshmem PCI device. No network and no disk is needed, and nothing depends on the
 * time; nor does the machine need memory for a copy of what comes through a pipe.
 *
 *   tar -c DIRECTORY | laxity-shelf
 *
 * The shelf then holds "LAXITYRS", the length as 8 bytes, little-endian, and the input. The magic
 * is written last: who sees it sees all of the rest.
 *
 * Exit code 2 for a wrong use or an input that does not fit, 1 for a machine without a shelf.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICES "/sys/bus/pci/devices/*"
#define VENDOR 0x1af4
#define DEVICE 0x1110

#define HEADER_BYTES 16
static const char magic[8] = "LAXITYRS";

__attribute__((noreturn, format(printf, 2, 3))) static void quit(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("laxity-shelf: error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

static int open_attribute(const char *device, const char *attribute, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", device, attribute);
    return open(path, flags);
}

static long read_identifier(const char *device, const char *attribute)
{
    char text[16] = "";
    int file = open_attribute(device, attribute, O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) < 0)
        quit(1, "%s/%s: %s", device, attribute, strerror(errno));
    close(file);
    return strtol(text, NULL, 16);
}

/* Maps the whole shelf; it is never unmapped. */
static volatile uint8_t *open_shelf(uint64_t *bytes)
{
    glob_t devices;
    int error = glob(DEVICES, 0, NULL, &devices);
    if (error && error != GLOB_NOMATCH)
        quit(1, "%s cannot be listed", DEVICES);
    const char *shelf = NULL;
    for (size_t i = 0; !error && i < devices.gl_pathc; i++) {
        const char *device = devices.gl_pathv[i];
        if (read_identifier(device, "vendor") != VENDOR ||
            read_identifier(device, "device") != DEVICE)
            continue;
        if (shelf)
            quit(1, "%s and %s are both PCI devices %04x:%04x: only one can be the shelf", shelf,
                 device, VENDOR, DEVICE);
        shelf = device;
    }
    if (!shelf)
        quit(1, "there is no PCI device %04x:%04x: this machine has no shelf", VENDOR, DEVICE);

    int enable = open_attribute(shelf, "enable", O_WRONLY);
    if (enable < 0 || write(enable, "1", 1) != 1)
        quit(1, "%s cannot be enabled: %s", shelf, strerror(errno));
    close(enable);
    struct stat status;
    int memory = open_attribute(shelf, "resource2", O_RDWR);
    if (memory < 0 || fstat(memory, &status))
        quit(1, "the memory of %s cannot be opened: %s", shelf, strerror(errno));
    *bytes = (uint64_t)status.st_size;
    void *mapped = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (mapped == MAP_FAILED)
        quit(1, "the memory of %s cannot be mapped: %s", shelf, strerror(errno));
    return mapped;
}

int main(int count, char **arguments)
{
    (void)arguments;
    if (count != 1)
        quit(2, "use: laxity-shelf, with what to put there as standard input");
    uint64_t done = 0, shelf_bytes;
    volatile uint8_t *shelf = open_shelf(&shelf_bytes);
    if (shelf_bytes < HEADER_BYTES)
        quit(2, "the shelf of %llu bytes cannot hold anything", (unsigned long long)shelf_bytes);
    uint64_t room = shelf_bytes - HEADER_BYTES;

    /* What stood here before is not valid from now on. */
    memset((void *)shelf, 0, HEADER_BYTES);
    for (;;) {
        uint8_t beyond, *place = (uint8_t *)shelf + HEADER_BYTES + done;
        ssize_t got = done < room ? read(STDIN_FILENO, place, room - done)
                                  : read(STDIN_FILENO, &beyond, sizeof beyond);
        if (got < 0)
            quit(1, "the standard input cannot be read: %s", strerror(errno));
        if (!got)
            break;
        if (done == room)
            quit(2, "there are more bytes than the %llu that the shelf can hold: make it larger",
                 (unsigned long long)room);
        done += (uint64_t)got;
    }
    uint64_t length = htole64(done);
    memcpy((uint8_t *)shelf + sizeof magic, &length, sizeof length);
    __sync_synchronize();
    memcpy((void *)shelf, magic, sizeof magic);
    return 0;
}
