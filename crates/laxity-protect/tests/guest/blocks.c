// A store of the disk's first blocks: each count is written to one of them, in turn, and what was
// written there last must be there.

#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "store.h"

enum { SLOTS = 64 };

static int disk;
static uint64_t *block;

static uint64_t *slot_on_disk(uint64_t slot)
{
    if (pread(disk, block, PAGE_BYTES, (off_t)slot * PAGE_BYTES) != PAGE_BYTES)
        fail("reading the disk");
    return block;
}

uint64_t open_store(const char *path)
{
    uint64_t highest = 0;

    disk = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (disk < 0)
        fail(path);
    block = pages(1);
    for (uint64_t slot = 0; slot < SLOTS; slot++)
        if (*slot_on_disk(slot) > highest)
            highest = *block;
    return highest;
}

uint64_t store(uint64_t count, uint64_t request)
{
    uint64_t slot = count % SLOTS,
             is_wrong = *slot_on_disk(slot) != (count > SLOTS ? count - SLOTS : 0);

    (void)request;
    *block = count;
    if (pwrite(disk, block, PAGE_BYTES, (off_t)slot * PAGE_BYTES) != PAGE_BYTES ||
        fdatasync(disk) < 0)
        fail("writing to the disk");
    return is_wrong;
}

uint64_t wrong_in_store(uint64_t count)
{
    uint64_t wrong = 0;

    for (uint64_t back = 0; back < SLOTS && back < count; back++)
        wrong += *slot_on_disk((count - back) % SLOTS) != count - back;
    return wrong;
}
