#include <stdio.h>
#include <string.h>

#include "counts.h"

// A number that a query gives, or -1.
static int64_t number(sqlite3 *database, const char *query)
{
    sqlite3_stmt *asked;
    int64_t found = -1;

    if (sqlite3_prepare_v2(database, query, -1, &asked, NULL) == SQLITE_OK &&
        sqlite3_step(asked) == SQLITE_ROW)
        found = sqlite3_column_int64(asked, 0);
    else
        printf("%s: %s\n", query, sqlite3_errmsg(database));
    sqlite3_finalize(asked);
    return found;
}

static int is_whole(sqlite3 *database)
{
    sqlite3_stmt *asked;
    int is_whole = 0;

    if (sqlite3_prepare_v2(database, "PRAGMA integrity_check", -1, &asked, NULL) == SQLITE_OK)
        while (sqlite3_step(asked) == SQLITE_ROW) {
            const char *said = (const char *)sqlite3_column_text(asked, 0);
            is_whole = said && strcmp(said, "ok") == 0;
            if (!is_whole)
                printf("integrity_check: %s\n", said ? said : "nothing");
        }
    if (sqlite3_finalize(asked) != SQLITE_OK) {
        printf("integrity_check: %s\n", sqlite3_errmsg(database));
        return 0;
    }
    return is_whole;
}

int64_t checked(sqlite3 *database)
{
    int64_t highest, kept;

    if (!is_whole(database))
        return -1;
    highest = number(database, "SELECT highest FROM summary");
    kept = highest < KEPT ? highest : KEPT;
    // A transaction is there with all that it wrote: its row, the sum over all rows, and the row
    // that it deleted is not.
    if (highest < 0 || number(database, "SELECT count(*) FROM counts") != kept ||
        number(database, "SELECT coalesce(max(count), 0) FROM counts") != highest ||
        number(database, "SELECT count(*) FROM counts WHERE text != printf('%064d', count)") != 0 ||
        number(database,
               "SELECT coalesce(sum(count), 0) - (SELECT sum FROM summary) FROM counts") != 0) {
        printf("the rows are not those of %lld transactions\n", (long long)highest);
        return -1;
    }
    return highest;
}
