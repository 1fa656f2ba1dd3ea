# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# What a plan says, on a KVM host. POSIX shell; besides our own programs it needs what busybox has.
#
#   LAXITY   the directory of our programs
#   PLAN     the directory of the plan: plan.sh
#   RESULTS  the directory for all that comes of it
#
# Whoever starts a plan sets these, sources this file and then plan.sh. What goes wrong ends the shell, with one
# sentence in $RESULTS/error; lines that begin with "laxity: " tell how far it is. In $RESULTS:
#
#   RUN/start            ns of the TSC's clock at the start of the run
#   RUN/threads          a line "NAME TID..." for each domain: the threads of its VCPUs
#   RUN/trace.bin        the kernel's trace buffers, as laxity-ftrace writes them
#   RUN/policy.bin       what a policy of Laxity did to VCPUs, as laxity-scx writes it
#   RUN/NAME.jobs        what a guest reports, see report.h
#   compared             a line "POLICY same EVENTS DECISIONS ..." for each comparison
#   RUN/profile          how long calls of functions took, as the kernel's function_graph tracer tells it
#   RUN/decisions        how often a policy of Laxity decided, if one scheduled
#   RUN/others           "TOTAL RESERVE": ns that tasks that are no VCPUs had meanwhile, and those of them in which a
#                        VCPU waited
PATH=$LAXITY:$PATH

GROUPS_ROOT=/sys/fs/cgroup
TRACING=/sys/kernel/tracing
# KiB of the buffer for a profile.
PROFILE_KIB=65536
# A machine that takes longer has died; the limit is for that alone.
READY_S=600
# Between two looks at what somebody says, and how many they are in a second: each is processes, which take the CPU
# from whom they wait for.
LOOK_S=0.1
LOOKS_A_SECOND=10
# A run that began before all was ready is tried again, with twice the lead.
TRIES=6

say() {
    echo "laxity: $*"
}

fail() {
    echo "$*" >"$RESULTS/error"
    say "error: $*" >&2
    exit 1
}

put() {
    echo "$1" >"$2" 2>/dev/null || fail "$2 cannot be set to $1"
}

# real_time: real-time threads may have all of a CPU, and nobody else gets some of it for fear of starvation. A host
# that keeps those reserves says so by leaving this out.
real_time() {
    put -1 /proc/sys/kernel/sched_rt_runtime_us
    for server in /sys/kernel/debug/sched/*_server/cpu*/runtime; do
        [ ! -f "$server" ] || put 0 "$server"
    done
}

# scheduler hrtick|jiffies BASE_SLICE_NS: whether budgets of SCHED_DEADLINE end by a timer of their own or at the next
# tick; how long a turn of the fair class is, 0 for the kernel's own
scheduler() {
    case $1 in
    hrtick) put HRTICK_DL /sys/kernel/debug/sched/features ;;
    *) put NO_HRTICK_DL /sys/kernel/debug/sched/features ;;
    esac
    [ "$2" -eq 0 ] || put "$2" /sys/kernel/debug/sched/base_slice_ns
}

# sched_ext POLICY CPUS KEY=VALUE...: VCPUs are scheduled by a policy of Laxity, $LAXITY/POLICY.bpf.o, on so many CPUs,
# with these settings
sched_ext() {
    policy=$1
    shift
    settings=$*
    : >/tmp/scheduler.domains
}

# profile FUNCTION...: windows tell how long each call of these functions of the kernel takes, which disturbs them
profile() {
    profiled=$*
    put 0 $TRACING/tracing_on
    put $PROFILE_KIB $TRACING/buffer_size_kb
    : >$TRACING/set_ftrace_filter
    for function in $profiled; do
        echo "$function" >>$TRACING/set_ftrace_filter || fail "the kernel has no function $function to be profiled"
    done
    put function_graph $TRACING/current_tracer
    put 1 $TRACING/options/funcgraph-tail
}

# exits: windows also record when guests are entered and left, and why
exits() {
    exits=--exits
}

# behind NS: periods of servers begin so long after the runs of windows
behind() {
    behind_ns=$1
}

# parameters NAME KEY=VALUE...: those of a domain under that policy
parameters() {
    echo "domain $*" >>/tmp/scheduler.domains
}

# begin NAME CPU...: on which CPU each VCPU of a domain begins under that policy
begin() {
    name=$1
    shift
    eval "cpus_$(identifier "$name")=\$*"
}

# domain NAME VCPUS WEIGHT CPU.MAX CPU.MAX.BURST: a control group and what runs in it, for the next window
domain() {
    put "+cpu" $GROUPS_ROOT/cgroup.subtree_control
    mkdir -p "$GROUPS_ROOT/$1"
    put "$3" "$GROUPS_ROOT/$1/cpu.weight"
    put "$4" "$GROUPS_ROOT/$1/cpu.max"
    put "$5" "$GROUPS_ROOT/$1/cpu.max.burst"
    domains="$domains $1"
    eval "vcpus_$(identifier "$1")=$2"
    : >"/tmp/$1.orders"
}

# A name as a variable may have it.
identifier() {
    echo "$1" | sed 's/-/_/g'
}

# order NAME WORD...: a line of orders, see laxity-vmm
order() {
    name=$1
    shift
    echo "$*" >>"/tmp/$name.orders"
}

# window RUN DURATION_NS LEAD_NS MIB POLICY_MIB: one run, in all domains, from one instant on; the kernel's trace
# buffers have MIB for each CPU, and a policy's events POLICY_MIB
window() {
    run=$1 duration=$2 lead=$3 mib=$4 policy_mib=$5 tries=1 into=$RESULTS/$1
    mkdir -p "$into"
    until try_window; do
        [ "$tries" -lt "$TRIES" ] || fail "run $run began before $late was ready in each of $TRIES tries"
        lead=$((lead * 2)) tries=$((tries + 1))
        say "run $run began before $late was ready; again, with a lead of $lead ns"
    done
    say "run $run is done"
}

try_window() {
    late=
    : >"$into/threads"
    for name in $domains; do
        rm -f "/tmp/$name.in" "/tmp/$name.go" "/tmp/$name.out"
        mkfifo "/tmp/$name.in" "/tmp/$name.go"
        eval "count=\$vcpus_$(identifier "$name")"
        sh -c 'echo $$ >"$0/cgroup.procs" && exec laxity-vmm "$1" "$2"' "$GROUPS_ROOT/$name" "$name" "$count" \
            <"/tmp/$name.in" >"/tmp/$name.out" 2>&1 &
        # Waits for the orders, and takes no time meanwhile.
        cat "/tmp/$name.go" >"/tmp/$name.in" &
    done
    for name in $domains; do
        wait_for "$name" ready
        set -- $state
        shift 2
        echo "$name $*" >>"$into/threads"
        say "$name is ready"
    done
    [ -z "$policy" ] || start_scheduler
    now=$(laxity-vmm --now) || fail "laxity-vmm: $now"
    start=$((${now%% *} + lead))
    # Periods begin with the run, as in the simulator, but for what a plan says.
    [ -z "$policy" ] || echo "phase $((start + behind_ns)) ${now#* }" >&7
    laxity-ftrace --until $((start + duration)) --mib "$mib" $exits "$into/trace.bin" >/tmp/trace.log 2>&1 &
    tracer=$!
    until grep -qs recording /tmp/trace.log; do
        # One that began after the run is over records, and ends at once.
        kill -0 $tracer 2>/dev/null || grep -qs recording /tmp/trace.log || fail "$(cat /tmp/trace.log)"
        sleep 0.01
    done
    [ -z "$profiled" ] || put 1 $TRACING/tracing_on
    say "run $run: quiet for $(((lead + duration) / 1000000000 + 1)) s"
    for name in $domains; do
        { cat "/tmp/$name.orders"; echo "run $run $start $duration"; } >"/tmp/$name.go"
    done
    wait $tracer || fail "$(cat /tmp/trace.log)"
    [ -z "$profiled" ] || stop_profile
    for name in $domains; do
        wait_for "$name" ran late
        case $state in late*) late=$name ;; esac
    done
    [ -z "$policy" ] || stop_scheduler
    wait
    for name in $domains; do
        rm -f "/tmp/$name.go"
        sed -n '/^laxity-report /,$p' "/tmp/$name.out" >"$into/$name.jobs"
    done
    echo "$start" >"$into/start"
    [ -z "$late" ]
}

stop_profile() {
    put 0 $TRACING/tracing_on
    lost=$(sed -n 's/^overrun: //p' $TRACING/per_cpu/cpu0/stats)
    [ "$lost" = 0 ] || fail "run $run: the profile has lost $lost events"
    cat $TRACING/trace >"$into/profile"
    put nop $TRACING/current_tracer
}

# compare POLICY SEED EVENTS: a policy in BPF decides as in the simulator for so many random events
compare() {
    said=$(laxity-scx-compare "$LAXITY/$1.bpf.o" "$@" 2>&1) || fail "$1, seed $2: $said"
    echo "$1 ${said#state }" >>"$RESULTS/compared"
    say "$1: ${said#state }"
}

# start_scheduler: all VCPUs of the machines that are ready become the policy's as soon as they ask for SCHED_EXT
start_scheduler() {
    rm -f /tmp/scheduler.in /tmp/scheduler.out
    mkfifo /tmp/scheduler.in
    laxity-scx "$LAXITY/$policy.bpf.o" "$policy" </tmp/scheduler.in >/tmp/scheduler.out 2>&1 &
    scheduler=$!
    exec 7>/tmp/scheduler.in
    {
        echo "settings $settings"
        cat /tmp/scheduler.domains
        while read -r name threads; do
            number=0
            eval "set -- \$cpus_$(identifier "$name")"
            for thread in $threads; do
                echo "vcpu $name $number $thread $1"
                number=$((number + 1))
                shift
            done
        done <"$into/threads"
        # What is profiled is to take no longer for it.
        [ -n "$profiled" ] || echo "trace $policy_mib $into/policy.bin"
        echo schedule
    } >&7
    until grep -q '^state scheduling' /tmp/scheduler.out; do
        kill -0 $scheduler 2>/dev/null || fail "the scheduler says: $(tail -n 20 /tmp/scheduler.out)"
        sleep $LOOK_S
    done
    say "$policy schedules"
}

# stop_scheduler: it ends with its orders; no run counts that the kernel ended it in
stop_scheduler() {
    exec 7>&-
    wait $scheduler || fail "the scheduler says: $(tail -n 20 /tmp/scheduler.out)"
    state=$(sed -n 's/^state done //p' /tmp/scheduler.out)
    set -- $state
    [ "$2" = 0 ] || fail "the kernel has taken the scheduler off: $(dmesg | grep sched_ext | tail -n 3)"
    echo "$1" >"$into/decisions"
    echo "$3 $4" >"$into/others"
}

# wait_for NAME STATE...: until a machine says one of these, which is $state then
wait_for() {
    its_name=$1 waited=0
    shift
    while :; do
        for awaited; do
            state=$(sed -n "s/^state \($awaited .*\)/\1/p" "/tmp/$its_name.out" | head -n 1)
            [ -z "$state" ] || return 0
        done
        error=$(sed -n 's/^state error //p' "/tmp/$its_name.out")
        [ -z "$error" ] || fail "the guest $its_name says: $error"
        [ "$waited" -lt $((READY_S * LOOKS_A_SECOND)) ] || fail "the guest $its_name has not said \"$1\" in $READY_S s"
        waited=$((waited + 1))
        sleep $LOOK_S
    done
}
domains=
policy=
profiled=
exits=
behind_ns=0
