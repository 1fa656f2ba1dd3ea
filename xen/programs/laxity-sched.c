/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads and sets what Laxity's scheduler in Xen goes by: parameters of domains and VCPUs, policy
 * and settings of a CPU pool; and makes pools with that scheduler, as xl does not know its name.
 *
 * The keys are in one table, and all that reads, sets, prints or explains a value goes by it. The
 * command line is checked before the hypervisor is asked for anything. Whether a value is in its
 * range is the hypervisor's to say: it says which value it refuses, and has changed nothing then.
 */
#include "pools.h"
#include "privcmd.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The types are here already. */
#define LAXITY_TYPES_HEADER <stddef.h>
#include <laxity/policy.h>

#include "laxity_op.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char usage_before_keys[] =
    "usage: laxity-sched get [--json] [--pool POOL | DOMAIN[/VCPU]]\n"
    "       laxity-sched set DOMAIN[/VCPU] KEY=VALUE...\n"
    "       laxity-sched set --pool POOL KEY=VALUE...\n"
    "       laxity-sched align POOL DURATION\n"
    "       laxity-sched pool list [--json]\n"
    "       laxity-sched pool create [NAME]\n"
    "       laxity-sched pool destroy POOL\n"
    "       laxity-sched pool add-cpu POOL CPU\n"
    "       laxity-sched pool remove-cpu POOL CPU\n"
    "       laxity-sched pool move DOMAIN POOL\n"
    "\n"
    "Laxity's scheduler in Xen: its parameters and its CPU pools. Runs in dom0.\n"
    "DOMAIN and POOL are a number or a name.\n"
    "\n"
    "Keys of a domain or VCPU:\n";

static const char usage_of_pools[] = "\nKeys of a pool:\n";

static const char usage_after_keys[] =
    "\n"
    "Times are written as \"2 ms\", 500us, \"1.5 ms\" or 2000000 (ns). Keys that are not\n"
    "named stay as they are. Setting a domain sets every VCPU of it to the domain's\n"
    "parameters. Values that do not fit together change nothing. A domain that moves\n"
    "to another pool begins there with default parameters.\n"
    "\n"
    "align sets the rhythm of the pool's budgets: every one is set to full at a time that\n"
    "is at least DURATION ahead, and whole periods from it. That time is also one of the\n"
    "quantum's and of credit's accounting. Prints it as CLOCK_REALTIME, in ns.\n"
    "\n"
    "Exit codes: 0 done; 1 failed; 2 wrong input, or refused by the hypervisor.\n";

/* ---- Keys ---- */

enum kind { DURATION, NUMBER, PERCENT, FLAG, POLICY };

struct key {
    const char *name, *json, *head;
    enum kind kind;
    bool of_pool;
    size_t offset; /* in struct laxity_op */
    enum laxity_error error;
    int64_t least, most;
    const char *rule; /* what is right beside the bounds */
};

#define KEY(name_, field_, key_, kind_, of_pool_, least_, most_, rule_) \
    {key_,                                                              \
     #field_,                                                           \
     #name_,                                                            \
     kind_,                                                             \
     of_pool_,                                                          \
     offsetof(struct laxity_op, field_),                                \
     LAXITY_ERROR_##name_,                                              \
     least_,                                                            \
     most_,                                                             \
     rule_},

static const struct key keys[] = {
#define LAXITY_PARAMETER(name_, field_, key_, kind_, least_, most_, standard_, rule_, ...) \
    KEY(name_, field_, key_, kind_, false, least_, most_, rule_)
#include <parameters.def>
    KEY(POLICY, policy, "policy", POLICY, true, 0, 0, "")
#define LAXITY_SETTING(name_, field_, key_, kind_, least_, most_, standard_, rule_, ...) \
    KEY(name_, field_, key_, kind_, true, least_, most_, rule_)
#include <parameters.def>
};

enum {
#define LAXITY_PARAMETER(name_, ...) COLUMN_##name_,
#include <parameters.def>
    PARAMETERS
};

static const struct policy {
    const char *name, *switch_group;
    unsigned substrates;
} policies[] = {
#define LAXITY_POLICY(identifier_, name_, family_, switch_group_, substrates_, ...) \
    {name_, #switch_group_, substrates_},
#include <policies.def>
};

/* Those that the hypervisor has. */
#define for_each_policy(policy)                                                                  \
    for (const struct policy *policy = policies; policy < policies + LENGTH(policies); policy++) \
        if (policy->substrates & LAXITY_ON_XEN)

static int64_t key_value(const struct key *key, const struct laxity_op *op)
{
    const void *member = (const char *)op + key->offset;

    return key->kind == DURATION ? *(const int64_t *)member : *(const uint32_t *)member;
}

static const char *key_text(const struct key *key, const struct laxity_op *op)
{
    switch (key->kind) {
    case DURATION:
        return duration_text(key_value(key, op));
    case PERCENT:
        return text("%" PRId64 "%%", key_value(key, op));
    case FLAG:
        return key_value(key, op) ? "yes" : "no";
    case POLICY:
        return op->policy;
    default:
        return text("%" PRId64, key_value(key, op));
    }
}

/* "a, b and c", of the policies of one switch group, or of all. */
static const char *policies_text(const char *switch_group)
{
    const char *list = "", *last = NULL;

    for_each_policy (policy) {
        if (switch_group && strcmp(policy->switch_group, switch_group))
            continue;
        if (last)
            list = text("%s%s%s", list, *list ? ", " : "", last);
        last = policy->name;
    }
    return *list ? text("%s and %s", list, last) : last;
}

/* The groups of more than one policy. */
static const char *switch_groups_text(void)
{
    const char *groups = "";

    for_each_policy (policy) {
        const char *group = policies_text(policy->switch_group);

        if (strcmp(group, policy->name) && !strstr(groups, group))
            groups = text("%s%s%s", groups, *groups ? ", or among " : "", group);
    }
    return groups;
}

static const char *key_right(const struct key *key)
{
    if (key->kind == POLICY)
        return text("any change of a pool without domains, otherwise one among %s",
                    switch_groups_text());
    if (key->kind == DURATION)
        return text("%s to %s%s", duration_text(key->least), duration_text(key->most), key->rule);
    return text("%" PRId64 " to %" PRId64 "%s", key->least, key->most, key->rule);
}

/* A line for each switch group. */
static void print_usage_of_policies(FILE *to, const char *key)
{
    const char *shown = "";

    for_each_policy (policy) {
        if (!strcmp(shown, policy->switch_group))
            continue;
        shown = policy->switch_group;
        fprintf(to, "  %-11s %s\n", key, policies_text(shown));
        key = "";
    }
}

static void print_usage_of_keys(FILE *to, bool of_pool)
{
    for (size_t i = 0; i < LENGTH(keys); i++)
        if (keys[i].of_pool == of_pool) {
            if (keys[i].kind == POLICY)
                print_usage_of_policies(to, keys[i].name);
            else
                fprintf(to, "  %-11s %s\n", keys[i].name, key_right(&keys[i]));
        }
}

static void print_usage(FILE *to)
{
    fputs(usage_before_keys, to);
    print_usage_of_keys(to, false);
    fputs(usage_of_pools, to);
    print_usage_of_keys(to, true);
    fputs(usage_after_keys, to);
}

struct assignment {
    const struct key *key;
    int64_t number;
    const char *policy;
};

static void assign(const struct assignment *assignment, struct laxity_op *op)
{
    void *member = (char *)op + assignment->key->offset;

    switch (assignment->key->kind) {
    case DURATION:
        *(int64_t *)member = assignment->number;
        break;
    case POLICY:
        strncpy(op->policy, assignment->policy, sizeof(op->policy) - 1);
        break;
    default:
        *(uint32_t *)member = assignment->number;
    }
}

static const struct key *parse_key(const char *name, bool of_pool)
{
    struct nearest nearest = {.word = name};

    for (size_t i = 0; i < LENGTH(keys); i++) {
        if (strcmp(keys[i].name, name)) {
            if (keys[i].of_pool == of_pool)
                consider(&nearest, keys[i].name);
        } else if (keys[i].of_pool == of_pool) {
            return &keys[i];
        } else if (of_pool) {
            fail(EXIT_REFUSED, "%s is a domain's: laxity-sched set DOMAIN %s=...", name, name);
        } else {
            fail(EXIT_REFUSED, "%s is a pool's: laxity-sched set --pool POOL %s=...", name, name);
        }
    }
    fail(EXIT_REFUSED, "there is no key '%s'%s", name, did_you_mean(&nearest));
}

static struct assignment parse_assignment(const char *word, bool of_pool)
{
    const char *equals = strchr(word, '='), *value;
    struct assignment assignment = {0};
    struct nearest nearest;
    bool right = false;

    if (!equals)
        fail(EXIT_REFUSED, "'%s' is not KEY=VALUE", word);
    value = equals + 1;
    assignment.key = parse_key(text("%.*s", (int)(equals - word), word), of_pool);
    switch (assignment.key->kind) {
    case DURATION:
        right = parse_duration(value, &assignment.number);
        break;
    case NUMBER:
    case PERCENT:
        right = parse_number(value, UINT32_MAX, &assignment.number);
        break;
    case FLAG:
        right = parse_number(value, 1, &assignment.number);
        break;
    case POLICY:
        nearest = (struct nearest){.word = value};
        for_each_policy (policy) {
            consider(&nearest, policy->name);
            if (!strcmp(policy->name, value))
                assignment.policy = policy->name;
        }
        if (!assignment.policy)
            fail(EXIT_REFUSED, "there is no policy '%s'%s; the policies are %s", value,
                 did_you_mean(&nearest), policies_text(NULL));
        right = true;
    }
    if (!right)
        fail(EXIT_REFUSED, "%s is wrong: '%s'; right is %s%s", assignment.key->name, value,
             key_right(assignment.key),
             assignment.key->kind == DURATION ? ", such as \"2 ms\", 500us or 2000000 (ns)" : "");
    return assignment;
}

static const char *name_or_dash(const char *name)
{
    return name ? name : "-";
}

static const char *json_name(const char *name)
{
    return name ? json_string(name) : "null";
}

/* ---- Laxity's own hypercall ---- */

static noreturn void hypercall_failed(const char *what, int error)
{
    if (error == -EACCES || error == -EOPNOTSUPP)
        fail(EXIT_FAILED,
             "%s: hypervisor and laxity-sched are not of the same build (this has version %u of "
             "their interface)",
             what, LAXITY_OP_VERSION);
    if (error == -ESRCH)
        fail(EXIT_FAILED, "%s: the domain has just ended, or changed its pool", what);
    fail(EXIT_FAILED, "%s: %s", what, strerror(-error));
}

static struct laxity_op get(uint32_t pool, uint32_t command, uint32_t domid, uint32_t vcpu)
{
    struct laxity_op op = {.domid = domid, .vcpu = vcpu};
    int error = laxity(pool, command, &op);

    if (error == -ENOENT)
        fail(EXIT_REFUSED, "domain %u has no VCPU %u", domid, vcpu);
    if (error)
        hypercall_failed("cannot read the scheduler's parameters", error);
    return op;
}

/* Sets, or ends the program with what is right. `whose` names the domain, VCPU or pool. */
static void set(uint32_t pool, uint32_t command, struct laxity_op *op, const char *whose)
{
    int error = laxity(pool, command, op);

    if (!error)
        return;
    for (size_t i = 0; error == -EINVAL && op->error && i < LENGTH(keys); i++)
        if (keys[i].error == op->error)
            fail(EXIT_REFUSED, "%s: the hypervisor refused %s = %s; right is %s%s. Nothing changed",
                 whose, keys[i].name, key_text(&keys[i], op), key_right(&keys[i]),
                 op->error == LAXITY_ERROR_BUDGET ? text(" (%s)", duration_text(op->period_ns))
                                                  : "");
    hypercall_failed(whose, error);
}

static void require_laxity(const struct pool *pool)
{
    if (pool->scheduler != XEN_SCHEDULER_LAXITY)
        fail(EXIT_REFUSED,
             "pool %u has the scheduler %s, not laxity (sched=laxity of Xen, or "
             "laxity-sched pool create)",
             pool->id, scheduler_name(pool->scheduler));
}

static struct pool laxity_pool_of(const struct domain *domain)
{
    struct pool pool = find_pool(text("%u", domain->pool));

    require_laxity(&pool);
    return pool;
}

/* ---- get ---- */

struct target {
    const char *domain;
    int64_t vcpu; /* -1: all of them */
};

/* "NAME/2": names have no slash. */
static struct target parse_target(const char *word)
{
    const char *slash = strchr(word, '/');
    struct target target = {.domain = word, .vcpu = -1};

    if (slash) {
        target.domain = text("%.*s", (int)(slash - word), word);
        if (!parse_number(slash + 1, LAXITY_VCPUS_MAX - 1, &target.vcpu))
            fail(EXIT_REFUSED, "'%s' is not a VCPU's number; right is DOMAIN/VCPU, such as 3/0",
                 slash + 1);
    }
    if (!*target.domain)
        fail(EXIT_REFUSED, "the domain is missing in '%s'", word);
    return target;
}

/* The width of a terminal. */
#define LINE_COLUMNS 79

static void print_pool(const struct pool *pool, const struct laxity_op *op)
{
    size_t column = 0;

    printf("Pool %u (%s): %s on CPUs %s\n", pool->id, name_or_dash(pool->name), op->policy,
           cpus_text(pool->cpus));
    for (size_t i = 0; i < LENGTH(keys); i++)
        if (keys[i].of_pool && keys[i].kind != POLICY) {
            /* A rule that is not a further condition says what 0 means. */
            bool is_meaning = !key_value(&keys[i], op) && *keys[i].rule == ' ';
            char *one = text(" %s %s%s", keys[i].name, key_text(&keys[i], op),
                             is_meaning ? keys[i].rule : "");
            bool fits = column + strlen(one) < LINE_COLUMNS;
            printf("%s%s", !column ? " " : fits ? "," : ",\n ", one);
            column = (fits ? column : 0) + strlen(one) + 1;
        }
    putchar('\n');
    printf("  %" PRIu64 " decisions, %" PRIu64 " switches, %" PRIu64 " timers, %" PRIu64
           " wakes so far\n",
           op->decisions, op->switches, op->timers, op->wakes);
}

/* "key": value, of all keys of a pool or of a domain. */
static void print_json_keys(const struct laxity_op *op, bool of_pool)
{
    for (size_t i = 0; i < LENGTH(keys); i++) {
        if (keys[i].of_pool != of_pool)
            continue;
        printf(", \"%s\": ", keys[i].json);
        if (keys[i].kind == POLICY)
            printf("%s", json_string(op->policy));
        else if (keys[i].kind == FLAG)
            printf(key_value(&keys[i], op) ? "true" : "false");
        else
            printf("%" PRId64, key_value(&keys[i], op));
    }
}

static void print_json_pool(const struct pool *pool)
{
    const char *separator = "";

    printf("{\"id\": %u, \"name\": %s, \"scheduler\": %s, \"domains\": %u, \"cpus\": [", pool->id,
           json_name(pool->name), json_string(scheduler_name(pool->scheduler)), pool->domains);
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++) {
        if (!has_cpu(pool->cpus, cpu))
            continue;
        printf("%s%u", separator, cpu);
        separator = ", ";
    }
    putchar(']');
    if (pool->scheduler == XEN_SCHEDULER_LAXITY) {
        struct laxity_op op = get(pool->id, LAXITY_OP_GET_POOL, 0, 0);

        print_json_keys(&op, true);
        printf(", \"decisions\": %" PRIu64 ", \"switches\": %" PRIu64 ", \"timers\": %" PRIu64
               ", \"wakes\": %" PRIu64,
               op.decisions, op.switches, op.timers, op.wakes);
    }
    putchar('}');
}

static void print_json_domain(const struct domain *domain, int64_t vcpu)
{
    struct laxity_op op = get(domain->pool, LAXITY_OP_GET_DOMAIN, domain->id, 0);
    uint32_t first = vcpu < 0 ? 0 : vcpu, end = vcpu < 0 ? op.vcpus : vcpu + 1;

    printf("{\"id\": %u, \"name\": %s, \"pool\": %u, \"vcpus\": %u", domain->id,
           json_name(domain->name), domain->pool, op.vcpus);
    print_json_keys(&op, false);
    printf(", \"vcpu\": [");
    for (uint32_t id = first; id < end; id++) {
        op = get(domain->pool, LAXITY_OP_GET_VCPU, domain->id, id);
        printf("%s{\"id\": %u", id == first ? "" : ", ", id);
        print_json_keys(&op, false);
        printf(", \"cpu\": %u, \"runnable\": %s}", op.cpu, op.runnable ? "true" : "false");
    }
    printf("]}");
}

/* Adds the heads of a domain's keys to a table's row, or, of an op, their values. */
static void add_keys(struct table *table, const struct laxity_op *op)
{
    for (size_t i = 0; i < LENGTH(keys); i++)
        if (!keys[i].of_pool)
            table_cell(table, op ? key_text(&keys[i], op) : keys[i].head);
}

static void print_domains(const struct pool *pool)
{
    struct table table = {.columns = 3 + PARAMETERS};
    struct domain domain;

    table_cell(&table, "ID");
    table_cell(&table, "VCPUS");
    add_keys(&table, NULL);
    table_cell(&table, "NAME");
    for (uint32_t from = 0; next_domain(from, &domain); from = domain.id + 1) {
        struct laxity_op op = {.domid = domain.id};

        /* A domain that ends meanwhile is not listed. */
        if (domain.pool != pool->id || laxity(pool->id, LAXITY_OP_GET_DOMAIN, &op))
            continue;
        table_cell(&table, text("%u", domain.id));
        table_cell(&table, text("%u", op.vcpus));
        add_keys(&table, &op);
        table_cell(&table, name_or_dash(domain.name));
    }
    if (table.rows > 1)
        table_print(&table);
}

static void print_domain(const struct domain *domain, int64_t vcpu)
{
    struct table parameters = {.columns = 1 + PARAMETERS}, state = {.columns = 3};
    struct laxity_op op = get(domain->pool, LAXITY_OP_GET_DOMAIN, domain->id, 0);
    uint32_t first = vcpu < 0 ? 0 : vcpu, end = vcpu < 0 ? op.vcpus : vcpu + 1;

    table_cell(&parameters, "VCPU");
    add_keys(&parameters, NULL);
    if (vcpu < 0) {
        table_cell(&parameters, "all");
        add_keys(&parameters, &op);
    }
    table_row(&state, "VCPU", "CPU", "STATE");
    for (uint32_t id = first; id < end; id++) {
        op = get(domain->pool, LAXITY_OP_GET_VCPU, domain->id, id);
        table_cell(&parameters, text("%u", id));
        add_keys(&parameters, &op);
        table_row(&state, text("%u", id), text("%u", op.cpu), op.runnable ? "runnable" : "blocked");
    }
    printf("Domain %u (%s) in pool %u\n\n", domain->id, name_or_dash(domain->name), domain->pool);
    table_print(&parameters);
    putchar('\n');
    table_print(&state);
}

static void get_domain(const struct target *target, bool json)
{
    struct domain domain = find_domain(target->domain);
    struct pool pool = laxity_pool_of(&domain);

    if (!json) {
        print_domain(&domain, target->vcpu);
        return;
    }
    /* Refused here if it does not exist, before half an object is written. */
    if (target->vcpu >= 0)
        get(pool.id, LAXITY_OP_GET_VCPU, domain.id, target->vcpu);
    printf("{\"pools\": [");
    print_json_pool(&pool);
    printf("], \"domains\": [");
    print_json_domain(&domain, target->vcpu);
    printf("]}\n");
}

static void print_pools(const struct pool *pools, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct laxity_op op = get(pools[i].id, LAXITY_OP_GET_POOL, 0, 0);

        printf("%s", i ? "\n" : "");
        print_pool(&pools[i], &op);
        print_domains(&pools[i]);
    }
}

static void print_json_pools(const struct pool *pools, size_t count)
{
    const char *separator = "";
    struct domain domain;

    printf("{\"pools\": [");
    for (size_t i = 0; i < count; i++) {
        printf("%s", i ? ", " : "");
        print_json_pool(&pools[i]);
    }
    printf("], \"domains\": [");
    for (size_t i = 0; i < count; i++) {
        for (uint32_t from = 0; next_domain(from, &domain); from = domain.id + 1) {
            if (domain.pool != pools[i].id)
                continue;
            printf("%s", separator);
            print_json_domain(&domain, -1);
            separator = ", ";
        }
    }
    printf("]}\n");
}

/* One pool, or (NULL) all that have this scheduler. */
static void get_pools(const char *word, bool json)
{
    struct pool *pools = NULL, pool;
    size_t count = 0;

    if (word) {
        pool = find_pool(word);
        require_laxity(&pool);
        pools = &pool;
        count = 1;
    } else {
        for (uint32_t from = 0; next_pool(from, &pool); from = pool.id + 1) {
            if (pool.scheduler != XEN_SCHEDULER_LAXITY)
                continue;
            pools = reallocarray(pools, count + 1, sizeof(*pools));
            if (!pools)
                fail(EXIT_FAILED, "no memory");
            pools[count++] = pool;
        }
        if (!count)
            fail(EXIT_REFUSED, "no CPU pool has the scheduler laxity; pool 0 has %s",
                 scheduler_name(find_pool("0").scheduler));
    }
    if (json)
        print_json_pools(pools, count);
    else
        print_pools(pools, count);
}

/* ---- set ---- */

static void set_domain(const struct target *target, const struct assignment *assignments,
                       size_t count)
{
    struct domain domain = find_domain(target->domain);
    struct pool pool = laxity_pool_of(&domain);
    bool one = target->vcpu >= 0;
    uint32_t vcpu = one ? target->vcpu : 0;
    struct laxity_op op =
        get(pool.id, one ? LAXITY_OP_GET_VCPU : LAXITY_OP_GET_DOMAIN, domain.id, vcpu);

    for (size_t i = 0; i < count; i++)
        assign(&assignments[i], &op);
    set(pool.id, one ? LAXITY_OP_SET_VCPU : LAXITY_OP_SET_DOMAIN, &op,
        text(one ? "domain %s, VCPU %u" : "domain %s", target->domain, vcpu));
}

static void set_pool(const char *word, const struct assignment *assignments, size_t count)
{
    struct pool pool = find_pool(word);
    const char *whose = text("pool %s", word);
    struct laxity_op op;
    bool settings = false, policy = false;
    int error;

    require_laxity(&pool);
    op = get(pool.id, LAXITY_OP_GET_POOL, 0, 0);
    for (size_t i = 0; i < count; i++) {
        if (assignments[i].key->kind == POLICY)
            policy = true;
        else
            settings = true;
    }
    /* The policy comes first, because each checks only the settings that it uses. */
    if (policy) {
        struct laxity_op changed = op;

        for (size_t i = 0; i < count; i++)
            if (assignments[i].key->kind == POLICY)
                assign(&assignments[i], &changed);
        set(pool.id, LAXITY_OP_SET_POLICY, &changed, whose);
    }
    if (settings) {
        struct laxity_op changed = op;

        for (size_t i = 0; i < count; i++)
            if (assignments[i].key->kind != POLICY)
                assign(&assignments[i], &changed);
        error = laxity(pool.id, LAXITY_OP_SET_SETTINGS, &changed);
        if (error && policy)
            set(pool.id, LAXITY_OP_SET_POLICY, &op, whose);
        if (error)
            set(pool.id, LAXITY_OP_SET_SETTINGS, &changed, whose);
    }
}

/* ---- pool ---- */

static void list_pools(bool json)
{
    struct xen_sysctl_cpupool_op operation = {0};
    struct table table = {.columns = 6};
    const char *separator = "";
    const uint8_t *map;
    struct pool pool;

    if (json)
        printf("{\"pools\": [");
    table_row(&table, "ID", "SCHEDULER", "POLICY", "DOMAINS", "CPUS", "NAME");
    for (uint32_t from = 0; next_pool(from, &pool); from = pool.id + 1) {
        const char *policy = "-";

        if (json) {
            printf("%s", separator);
            print_json_pool(&pool);
            separator = ", ";
            continue;
        }
        if (pool.scheduler == XEN_SCHEDULER_LAXITY)
            policy = text("%s", get(pool.id, LAXITY_OP_GET_POOL, 0, 0).policy);
        table_row(&table, text("%u", pool.id), scheduler_name(pool.scheduler), policy,
                  text("%u", pool.domains), cpus_text(pool.cpus), name_or_dash(pool.name));
    }
    if (json) {
        printf("]}\n");
        return;
    }
    table_print(&table);
    map = cpu_map(&operation);
    if (!cpupool(XEN_SYSCTL_CPUPOOL_OP_FREEINFO, &operation))
        printf("CPUs in no pool: %s\n", cpus_text(map));
}

static void destroy_pool(const char *word);

/* A pool has its name in xenstore, where xl looks for it, and needs one for xl to list it. */
static void create_pool(const char *name)
{
    struct xen_sysctl_cpupool_op operation = {.cpupool_id = XEN_SYSCTL_CPUPOOL_PAR_ANY,
                                              .sched_id = XEN_SCHEDULER_LAXITY};
    struct pool pool;
    int error;

    for (uint32_t from = 0; name && next_pool(from, &pool); from = pool.id + 1)
        if (pool.name && !strcmp(pool.name, name))
            fail(EXIT_REFUSED, "pool %u has the name '%s' already", pool.id, name);
    if (!store())
        fail(EXIT_FAILED, "xenstore, where a pool's name is kept, is not there");
    error = cpupool(XEN_SYSCTL_CPUPOOL_OP_CREATE, &operation);
    if (error == -EINVAL || error == -ENOENT)
        fail(EXIT_FAILED, "this hypervisor has no scheduler laxity");
    if (error)
        fail(EXIT_FAILED, "Xen cannot make a CPU pool: %s", strerror(-error));
    if (!name)
        name = text("Pool-%u", operation.cpupool_id);
    if (!xs_write(store(), XBT_NULL, text("/local/pool/%u/name", operation.cpupool_id), name,
                  strlen(name))) {
        error = errno;
        destroy_pool(text("%u", operation.cpupool_id));
        fail(EXIT_FAILED, "cannot write the pool's name to xenstore: %s", strerror(error));
    }
    printf("%u\n", operation.cpupool_id);
}

static void change_cpu(uint32_t command, const struct pool *pool, uint32_t cpu)
{
    /* Xen's documentation of its errors: busy ones pass by themselves. */
    enum { TRIES = 100, PAUSE_NS = 10000000 };
    bool add = command == XEN_SYSCTL_CPUPOOL_OP_ADDCPU;
    int error = 0;

    for (int i = 0; i < TRIES; i++) {
        struct xen_sysctl_cpupool_op operation = {.cpupool_id = pool->id, .cpu = cpu};

        error = cpupool(command, &operation);
        if (error != -EAGAIN && error != -EADDRINUSE)
            break;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    switch (error) {
    case 0:
        return;
    case -ENODEV:
    case -EINVAL:
        fail(EXIT_REFUSED,
             add ? "CPU %u is not free to be added to pool %u; see laxity-sched pool list"
                 : "CPU %u is not in pool %u; see laxity-sched pool list",
             cpu, pool->id);
    case -EBUSY:
        fail(EXIT_REFUSED,
             "CPU %u is the last of pool %u, which has domains in it; move them "
             "first",
             cpu, pool->id);
    case -EADDRNOTAVAIL:
        fail(EXIT_REFUSED, "another CPU is on its way out of its pool; repeat that removal first");
    default:
        fail(EXIT_FAILED, "CPU %u and pool %u: %s", cpu, pool->id, strerror(-error));
    }
}

static void destroy_pool(const char *word)
{
    struct pool pool = find_pool(word);
    struct xen_sysctl_cpupool_op operation = {.cpupool_id = pool.id};
    int error;

    if (!pool.id)
        fail(EXIT_REFUSED, "pool 0 is dom0's and stays");
    if (pool.domains)
        fail(EXIT_REFUSED, "pool %u has %u domains in it; move or destroy them first", pool.id,
             pool.domains);
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
        if (has_cpu(pool.cpus, cpu))
            change_cpu(XEN_SYSCTL_CPUPOOL_OP_RMCPU, &pool, cpu);
    error = cpupool(XEN_SYSCTL_CPUPOOL_OP_DESTROY, &operation);
    if (error)
        fail(EXIT_FAILED, "Xen cannot destroy pool %u: %s", pool.id, strerror(-error));
    if (store())
        xs_rm(store(), XBT_NULL, text("/local/pool/%u", pool.id));
}

static void move_domain(const char *domain_word, const char *pool_word)
{
    struct domain domain = find_domain(domain_word);
    struct pool pool = find_pool(pool_word);
    struct xen_sysctl_cpupool_op operation = {.cpupool_id = pool.id, .domid = domain.id};
    int error = cpupool(XEN_SYSCTL_CPUPOOL_OP_MOVEDOMAIN, &operation);

    if (error == -ENOENT)
        fail(EXIT_REFUSED, "pool %u has no CPU; add one first (laxity-sched pool add-cpu)",
             pool.id);
    if (error == -EPERM)
        fail(EXIT_REFUSED, "domain %u is the one that this runs in, and stays in its pool",
             domain.id);
    if (error)
        fail(EXIT_FAILED, "Xen cannot move domain %u to pool %u: %s", domain.id, pool.id,
             strerror(-error));
}

/* ---- The command line ---- */

static noreturn void wrong_usage(void)
{
    print_usage(stderr);
    exit(EXIT_REFUSED);
}

static noreturn void unknown(const char *what, const char *word, const char *const *names,
                             size_t count)
{
    struct nearest nearest = {.word = word};

    for (size_t i = 0; i < count; i++)
        consider(&nearest, names[i]);
    fail(EXIT_REFUSED, "there is no %s '%s'%s (laxity-sched --help)", what, word,
         did_you_mean(&nearest));
}

/* Takes `--name` out of the words. */
static bool take_flag(char **words, const char *name)
{
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(words[i], name))
            continue;
        for (; words[i]; i++)
            words[i] = words[i + 1];
        return true;
    }
    return false;
}

/* Takes `--name VALUE` out of the words; NULL where it is not there. */
static const char *take_option(char **words, const char *name)
{
    for (size_t i = 0; words[i]; i++) {
        const char *value = words[i + 1];

        if (strcmp(words[i], name))
            continue;
        if (!value)
            fail(EXIT_REFUSED, "%s needs a value", name);
        for (; words[i + 1]; i++)
            words[i] = words[i + 2];
        return value;
    }
    return NULL;
}

/* What is left are no options, and so many words. */
static size_t check_words(char **words, size_t least, size_t most)
{
    static const char *const options[] = {"--json", "--pool", "--help"};
    size_t count = 0;

    for (; words[count]; count++)
        if (words[count][0] == '-')
            unknown("option here", words[count], options, LENGTH(options));
    if (count < least || count > most)
        wrong_usage();
    return count;
}

static void command_get(char **words)
{
    bool json = take_flag(words, "--json");
    const char *pool = take_option(words, "--pool");
    size_t count = check_words(words, 0, 1);
    struct target target;

    if (pool && count)
        wrong_usage();
    if (count)
        target = parse_target(words[0]);
    privcmd_open();
    if (count)
        get_domain(&target, json);
    else
        get_pools(pool, json);
}

static void command_set(char **words)
{
    const char *pool = take_option(words, "--pool");
    struct assignment assignments[LENGTH(keys)];
    struct target target;
    size_t assigned = 0;

    check_words(words, pool ? 1 : 2, SIZE_MAX);
    if (!pool)
        target = parse_target(*words++);
    for (; *words; words++) {
        struct assignment assignment = parse_assignment(*words, pool);

        for (size_t i = 0; i < assigned; i++)
            if (assignments[i].key == assignment.key)
                fail(EXIT_REFUSED, "%s is given twice", assignment.key->name);
        assignments[assigned++] = assignment;
    }
    privcmd_open();
    if (pool)
        set_pool(pool, assignments, assigned);
    else
        set_domain(&target, assignments, assigned);
}

#define NS_PER_S INT64_C(1000000000)

static int64_t realtime_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * NS_PER_S + time.tv_nsec;
}

/* How far CLOCK_REALTIME is ahead of Xen's time: of several readings the one that took least. */
static int64_t realtime_ahead_ns(uint32_t pool)
{
    int64_t shortest_ns = INT64_MAX, ahead_ns = 0;

    for (int reading = 0; reading < 10; reading++) {
        int64_t before_ns = realtime_ns();
        struct laxity_op op = get(pool, LAXITY_OP_GET_POOL, 0, 0);
        int64_t took_ns = realtime_ns() - before_ns;

        if (took_ns < shortest_ns) {
            shortest_ns = took_ns;
            ahead_ns = before_ns + took_ns / 2 - op.now_ns;
        }
    }
    return ahead_ns;
}

/* The least one; refused where it is longer than an hour. */
static int64_t common_multiple(int64_t a_ns, int64_t b_ns)
{
    int64_t divisor_ns = a_ns, rest_ns = b_ns % a_ns, multiple_ns;

    while (rest_ns) {
        int64_t next_ns = divisor_ns % rest_ns;
        divisor_ns = rest_ns;
        rest_ns = next_ns;
    }
    if (__builtin_mul_overflow(a_ns / divisor_ns, b_ns, &multiple_ns) ||
        multiple_ns > 3600 * NS_PER_S)
        fail(EXIT_REFUSED,
             "the pool's quantum and accounting have no common multiple below an hour");
    return multiple_ns;
}

static void align(const char *word, int64_t duration_ns)
{
    struct pool pool = find_pool(word);
    struct laxity_op op;
    int64_t ahead_ns, step_ns;

    require_laxity(&pool);
    op = get(pool.id, LAXITY_OP_GET_POOL, 0, 0);
    step_ns = op.quantum_ns ? common_multiple(op.accounting_ns, op.quantum_ns) : op.accounting_ns;
    ahead_ns = realtime_ahead_ns(pool.id);
    op.phase_ns = realtime_ns() - ahead_ns + duration_ns + step_ns - 1;
    op.phase_ns -= op.phase_ns % step_ns;
    set(pool.id, LAXITY_OP_SET_PHASE, &op, text("pool %s", word));
    printf("%" PRId64 "\n", op.phase_ns + ahead_ns);
}

static void command_align(char **words)
{
    int64_t duration_ns;

    check_words(words, 2, 2);
    if (!parse_duration(words[1], &duration_ns) || duration_ns > LAXITY_DURATION_MAX)
        fail(EXIT_REFUSED, "'%s' is not a time; write \"2 s\", say", words[1]);
    privcmd_open();
    align(words[0], duration_ns);
}

static uint32_t parse_cpu(const char *word)
{
    int64_t cpu;

    if (!parse_number(word, CPUS_MAX - 1, &cpu))
        fail(EXIT_REFUSED, "'%s' is not a CPU's number", word);
    return cpu;
}

static void check_pool_name(const char *name)
{
    int64_t number;

    if (!*name || strchr(name, '/') || parse_number(name, INT64_MAX, &number))
        fail(EXIT_REFUSED,
             "'%s' cannot be a pool's name: it must not be a number, nor empty, nor "
             "have a slash",
             name);
}

static void command_pool(char **words)
{
    static const char *const commands[] = {"list",    "create",     "destroy",
                                           "add-cpu", "remove-cpu", "move"};
    const char *command = *words++;
    bool json;
    uint32_t cpu;
    struct pool pool;

    if (!command)
        wrong_usage();
    if (!strcmp(command, "list")) {
        json = take_flag(words, "--json");
        check_words(words, 0, 0);
        privcmd_open();
        list_pools(json);
    } else if (!strcmp(command, "create")) {
        check_words(words, 0, 1);
        if (words[0])
            check_pool_name(words[0]);
        privcmd_open();
        create_pool(words[0]);
    } else if (!strcmp(command, "destroy")) {
        check_words(words, 1, 1);
        privcmd_open();
        destroy_pool(words[0]);
    } else if (!strcmp(command, "add-cpu") || !strcmp(command, "remove-cpu")) {
        check_words(words, 2, 2);
        cpu = parse_cpu(words[1]);
        privcmd_open();
        pool = find_pool(words[0]);
        change_cpu(*command == 'a' ? XEN_SYSCTL_CPUPOOL_OP_ADDCPU : XEN_SYSCTL_CPUPOOL_OP_RMCPU,
                   &pool, cpu);
    } else if (!strcmp(command, "move")) {
        check_words(words, 2, 2);
        privcmd_open();
        move_domain(words[0], words[1]);
    } else {
        unknown("command pool", command, commands, LENGTH(commands));
    }
}

int main(int count, char **words)
{
    static const char *const commands[] = {"get", "set", "align", "pool"};

    words++;
    if (count < 2)
        wrong_usage();
    if (take_flag(words, "--help")) {
        print_usage(stdout);
        return EXIT_SUCCESS;
    }
    if (!strcmp(*words, "get"))
        command_get(words + 1);
    else if (!strcmp(*words, "set"))
        command_set(words + 1);
    else if (!strcmp(*words, "align"))
        command_align(words + 1);
    else if (!strcmp(*words, "pool"))
        command_pool(words + 1);
    else
        unknown("command", *words, commands, LENGTH(commands));
    return EXIT_SUCCESS;
}
