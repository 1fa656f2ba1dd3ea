// Looks at a database that a host left behind, as the guest would after a power failure, and says
// each count in it with its request. A database without tables has no counts.

#include <stdio.h>

#include "counts.h"

int main(int argc, char **argv)
{
    sqlite3 *database;
    sqlite3_stmt *row;
    int is_empty;

    if (argc != 2 || sqlite3_open_v2(argv[1], &database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        return 2;
    if (sqlite3_prepare_v2(database, "SELECT 1 FROM sqlite_master", -1, &row, NULL) != SQLITE_OK)
        return 1;
    is_empty = sqlite3_step(row) == SQLITE_DONE;
    if (sqlite3_finalize(row) != SQLITE_OK)
        return 1;
    if (is_empty)
        return 0;
    if (checked(database) < 0 || sqlite3_prepare_v2(database, "SELECT count, request FROM counts",
                                                    -1, &row, NULL) != SQLITE_OK)
        return 1;
    while (sqlite3_step(row) == SQLITE_ROW)
        printf("%lld %lld\n", (long long)sqlite3_column_int64(row, 0),
               (long long)sqlite3_column_int64(row, 1));
    return sqlite3_finalize(row) != SQLITE_OK;
}
