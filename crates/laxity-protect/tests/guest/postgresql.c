// A store of the usual kind for servers: a table of PostgreSQL, which runs as a process of its own,
// each count a transaction.
//
// The guest's root is on the disk: tools/build/counter_guest.py puts the server and its data there.

#define _GNU_SOURCE
#include <errno.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store.h"

#define PROGRAM "/usr/lib/postgresql/15/bin/postgres"
#define DATA "/data"

enum { RETRY_US = 20000 };

static pid_t server;
static PGconn *database;

static void start_server(void)
{
    struct stat data;

    if (stat(DATA, &data) < 0)
        fail(DATA);
    server = fork();
    if (server < 0)
        fail("fork");
    if (server == 0) {
        // The server does not run as root, and its data belong to its user.
        if (setgid(data.st_gid) < 0 || setuid(data.st_uid) < 0)
            _exit(1);
        execl(PROGRAM, PROGRAM, "-D", DATA, NULL);
        _exit(1);
    }
}

// Waits until the server has recovered its data and takes transactions. Returns 0 if it ends.
static int connect_to_server(void)
{
    for (;;) {
        database = PQconnectdb("host=/tmp dbname=postgres user=postgres");
        if (PQstatus(database) == CONNECTION_OK)
            return 1;
        if (waitpid(server, NULL, WNOHANG) != 0)
            return 0;
        PQfinish(database);
        usleep(RETRY_US);
    }
}

// The number that a query gives, or -1 and a message.
static int64_t number(const char *query)
{
    PGresult *said = PQexec(database, query);
    int64_t found = -1;

    if (PQresultStatus(said) == PGRES_TUPLES_OK && PQntuples(said) == 1)
        found = strtoll(PQgetvalue(said, 0, 0), NULL, 10);
    else
        printf("postgresql: %s gives %d rows: %s\n", query, PQntuples(said),
               PQerrorMessage(database));
    fflush(stdout);
    PQclear(said);
    return found;
}

static int64_t checked(void)
{
    return number("SELECT highest FROM checked");
}

static void mount_at(const char *kind, const char *where)
{
    if ((mkdir(where, 0755) < 0 && errno != EEXIST) || mount(kind, where, kind, 0, NULL) < 0)
        fail(where);
}

uint64_t open_store(const char *disk)
{
    int64_t highest;

    // The first root has mounted the disk, and this program comes from it.
    (void)disk;
    mount_at("proc", "/proc");
    mount_at("tmpfs", "/dev/shm");
    start_server();
    highest = connect_to_server() ? checked() : -1;
    if (highest < 0)
        fail("the database is broken");
    return (uint64_t)highest;
}

uint64_t store(uint64_t count, uint64_t request)
{
    char words[64];

    snprintf(words, sizeof words, "SELECT add(%llu, %llu)", (unsigned long long)count,
             (unsigned long long)request);
    return number(words) != (int64_t)count;
}

uint64_t wrong_in_store(uint64_t count)
{
    // The server ends without writing what it has in memory, and recovers from its log.
    PQfinish(database);
    if (kill(server, SIGQUIT) < 0 || waitpid(server, NULL, 0) != server)
        fail("the server does not end");
    drop_caches();
    start_server();
    if (connect_to_server() && checked() == (int64_t)count)
        return 0;
    printf("the database does not end with %llu\n", (unsigned long long)count);
    fflush(stdout);
    return 1;
}
