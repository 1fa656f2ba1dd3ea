// Looks at a database that a host left behind, as the guest would after a power failure, and says
// the highest count in it.

#include <stdio.h>

#include "counts.h"

int main(int argc, char **argv)
{
    sqlite3 *database;
    int64_t highest;

    if (argc != 2 || sqlite3_open_v2(argv[1], &database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        return 2;
    highest = checked(database);
    if (highest < 0)
        return 1;
    printf("%lld\n", (long long)highest);
    return 0;
}
