// A store of the usual kind: a table of SQLite, in a file system of Linux, each count a
// transaction.
//
// The kernel's command line gives journal=delete or journal=wal, SQLite's two ways.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "counts.h"
#include "store.h"

#define PLACE "/data/counts.db"

static sqlite3 *database;
static sqlite3_stmt *begin, *row, *oldest, *summary, *commit;

static void refused(const char *what)
{
    printf("database: %s: %s\n", what, sqlite3_errmsg(database));
    fail(what);
}

static void do_it(const char *words)
{
    if (sqlite3_exec(database, words, NULL, NULL, NULL) != SQLITE_OK)
        refused(words);
}

static sqlite3_stmt *prepared(const char *words)
{
    sqlite3_stmt *made;

    if (sqlite3_prepare_v2(database, words, -1, &made, NULL) != SQLITE_OK)
        refused(words);
    return made;
}

static void step(sqlite3_stmt *made, uint64_t count, uint64_t request)
{
    const uint64_t values[] = {count, request};

    for (int at = 0; at < sqlite3_bind_parameter_count(made); at++)
        sqlite3_bind_int64(made, at + 1, (int64_t)values[at]);
    if (sqlite3_step(made) != SQLITE_DONE)
        refused(sqlite3_sql(made));
    sqlite3_reset(made);
}

static void mount_at(const char *what, const char *where, const char *kind)
{
    if (mkdir(where, 0700) < 0 || mount(what, where, kind, 0, NULL) < 0)
        fail(where);
}

uint64_t open_store(const char *disk)
{
    const char *journal = getenv("journal");
    char words[160];
    int64_t highest;

    mount_at("proc", "/proc", "proc");
    mount_at(disk, "/data", "ext4");
    if (sqlite3_open(PLACE, &database) != SQLITE_OK)
        refused(PLACE);
    snprintf(words, sizeof words, "PRAGMA journal_mode=%s; PRAGMA synchronous=EXTRA",
             journal ? journal : "delete");
    do_it(words);
    // One transaction: a host that dies meanwhile leaves all of it, or an empty database.
    do_it("BEGIN IMMEDIATE;"
          "CREATE TABLE IF NOT EXISTS counts (count INTEGER PRIMARY KEY, text TEXT UNIQUE,"
          " request INTEGER);"
          "CREATE TABLE IF NOT EXISTS summary (highest INTEGER, sum INTEGER);"
          "INSERT INTO summary SELECT 0, 0 WHERE NOT EXISTS (SELECT * FROM summary);"
          "COMMIT");
    highest = checked(database);
    if (highest < 0)
        fail("the database is broken");
    begin = prepared("BEGIN IMMEDIATE");
    row = prepared("INSERT INTO counts VALUES (?1, printf('%064d', ?1), ?2)");
    snprintf(words, sizeof words, "DELETE FROM counts WHERE count = ?1 - %d", KEPT);
    oldest = prepared(words);
    snprintf(words, sizeof words,
             "UPDATE summary SET highest = ?1, sum = sum + ?1 - max(0, ?1 - %d)", KEPT);
    summary = prepared(words);
    commit = prepared("COMMIT");
    return (uint64_t)highest;
}

uint64_t store(uint64_t count, uint64_t request)
{
    step(begin, count, request);
    step(row, count, request);
    step(oldest, count, request);
    step(summary, count, request);
    step(commit, count, request);
    return 0;
}

uint64_t wrong_in_store(uint64_t count)
{
    sqlite3 *again;
    uint64_t is_wrong;

    drop_caches();
    if (sqlite3_open_v2(PLACE, &again, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        fail(PLACE);
    is_wrong = checked(again) != (int64_t)count;
    if (is_wrong)
        printf("the database does not end with %llu\n", (unsigned long long)count);
    fflush(stdout);
    sqlite3_close(again);
    return is_wrong;
}
