// What the guest of protection's tests keeps on its disk: blocks.c, database.c or postgresql.c.

#ifndef STORE_H
#define STORE_H

#include <stddef.h>
#include <stdint.h>

enum { PAGE_BYTES = 4096 };

// Opens the store on a disk. Returns the highest count in it, 0 if there is none.
uint64_t open_store(const char *disk);
// Adds the next count, of this request. It has reached the disk on return. Returns how much was found
// wrong.
uint64_t store(uint64_t count, uint64_t request);
// Looks at the whole store on the disk, past all caches, whose highest count must be `count`.
// Returns how much was found wrong.
uint64_t wrong_in_store(uint64_t count);

// The guest has these for its store: `fail` ends it with a word about an error of the system, `pages` gives memory,
// and after `drop_caches` the kernel has forgotten what its caches have of the file system.
void fail(const char *what);
void *pages(size_t how_many);
void drop_caches(void);

#endif
