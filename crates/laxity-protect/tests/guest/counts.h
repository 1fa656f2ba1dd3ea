// The database of counts, for the guest that writes it and for who looks at what a host left of it.

#ifndef COUNTS_H
#define COUNTS_H

#include <sqlite3.h>
#include <stdint.h>

// Counts that the database keeps. Older ones are deleted, so that a check takes the same time for
// all that was counted.
enum { KEPT = 4096 };

// Looks at all of a database. Returns the highest count in it, or -1 and says what is wrong with
// it.
int64_t checked(sqlite3 *database);

#endif
