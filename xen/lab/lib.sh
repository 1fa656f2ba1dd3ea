# shellcheck shell=sh
# SPDX-License-Identifier: GPL-2.0-only
#
# What a plan says, in dom0: of the emulated machine, or of a real Xen host. POSIX shell; besides xl, xenstore's
# tools and our own programs it needs what any Unix has.
#
#   LAXITY   the directory of our programs
#   PLAN     the directory of the plan: plan.sh, and NAME.cfg for each domain
#   RESULTS  the directory for all that comes of it
#
# Whoever starts a plan sets these, sources this file and then plan.sh. What goes wrong ends the shell, with one
# sentence in $RESULTS/error; lines that begin with "laxity: " tell how far it is. In $RESULTS:
#
#   domids               a line "NAME DOMID" for each domain that the plan created
#   bridge               the name of the bridge that the plan made, if calls need one
#   RUN/guests, domids   who took part in a run, and their numbers
#   RUN/start            CLOCK_REALTIME at its start, ns
#   RUN/trace.bin        Xen's trace buffers, as laxity-trace writes them
#   RUN/NAME.jobs        what a guest reports, see guest/report.h
#   RUN/NAME.output      what its program said, if it has one
#   RUN/calls.json, packets    what laxity-media measured of calls, if there are any
#   RUN/counters-before.json, counters-after.json    what Laxity's scheduler counts
PATH=$LAXITY:$PATH

# A guest that takes longer to boot, or to report, has died in a way that Xen does not notice. The limits are for
# that alone: a slow machine, or a guest with a small budget, takes a minute or two.
READY_S=600
REPORT_S=600
# How often we look whether a guest that we wait for is still there: that takes dom0 some time.
LOOK_S=5
# A run that began before all was ready is tried again, with twice the lead.
TRIES=6
# What laxity-media says when calls were to begin before they were set up.
LATE=1
# A node of xenstore holds 4 KB.
NODE_BYTES=3000
SECOND_NS=1000000000
# In which a few guests have woken that were all due at once, on the emulated machine.
WAKES_NS=25000
CONSOLES=/var/log/xen/console
# Of calls; none unless the plan has some.
streams=0
# The guests that run programs beside their tasks.
programs=
# Pages of Xen's trace buffers; none: laxity-trace makes buffers that are enough for most runs without calls.
pages=

say() {
    echo "laxity: $*"
}

fail() {
    echo "$*" >"$RESULTS/error"
    say "error: $*" >&2
    exit 1
}

# Runs a command; its complaints become ours if it fails.
do_or_fail() {
    "$@" >"$RESULTS/said" 2>&1 || fail "$* failed: $(tail -n 3 "$RESULTS/said" | tr '\n' ' ')"
    rm -f "$RESULTS/said"
}

# Sets $number, of a domain that the plan created, and $store, its directory in xenstore.
find_domain() {
    while read -r its_name number; do
        if [ "$its_name" = "$1" ]; then
            store=/local/domain/$number/data/laxity
            return
        fi
    done <"$RESULTS/domids"
    fail "the plan has created no domain $1"
}

# The file that has all that a guest wrote to its console.
console() {
    if [ -f "$CONSOLES/guest-$1.log" ]; then
        echo "$CONSOLES/guest-$1.log"
    else
        echo "$RESULTS/$1.console"
    fi
}

# "laxity", or the name of Xen's own scheduler that runs.
scheduler() {
    if [ -z "${running_scheduler:-}" ]; then
        if laxity-sched get >/dev/null 2>&1; then
            running_scheduler=laxity
        else
            running_scheduler=$(xl info | sed -n 's/^xen_scheduler *: //p')
        fi
    fi
}

# create NAME: from NAME.cfg, paused
create() {
    # For who tidies up after us, if we end before it is among the others.
    echo "$1" >"$RESULTS/creating"
    if ! (do_or_fail xl create -e -p -q "$PLAN/$1.cfg"); then
        # xl has destroyed it; of that name there may be somebody else's.
        rm "$RESULTS/creating"
        exit 1
    fi
    number=$(xl domid "$1") || fail "$1 was created and is not there"
    echo "$1 $number" >>"$RESULTS/domids"
    rm "$RESULTS/creating"
    # Where xenconsoled keeps no logs we read the console ourselves.
    if [ ! -f "$CONSOLES/guest-$1.log" ]; then
        cat <"$(xenstore-read "/local/domain/$number/console/tty")" >"$RESULTS/$1.console" 2>/dev/null &
    fi
    say "created $1"
}

# destroy NAME
destroy() {
    find_domain "$1"
    do_or_fail xl destroy "$number"
    sed "/^$1 /d" "$RESULTS/domids" >"$RESULTS/domids.left"
    mv "$RESULTS/domids.left" "$RESULTS/domids"
    say "destroyed $1"
}

# start_all: unpauses all domains, and returns when each is ready for a run
start_all() {
    while read -r name number; do
        do_or_fail xl unpause "$number"
    done <"$RESULTS/domids"
    while read -r name number; do
        wait_for "$name" "$READY_S" ready
        say "$name is ready"
    done <"$RESULTS/domids"
}

# wait_for NAME SECONDS STATE...: until a guest says one of these, which is $state then. "ready 123" is "ready".
wait_for() {
    find_domain "$1"
    its_name=$1 limit=$2
    shift 2
    read -r now _ </proc/uptime
    until=$((${now%%.*} + limit)) look=$((${now%%.*} + LOOK_S))
    while :; do
        state=$(xenstore-read "$store/state" 2>/dev/null) || state=
        for awaited; do
            case $state in
            "$awaited" | "$awaited "*) return ;;
            "error "*) fail "$its_name says: ${state#error }" ;;
            esac
        done
        read -r now _ </proc/uptime
        if [ "${now%%.*}" -ge "$until" ]; then
            die_of "$its_name" "has not said \"$1\" in $limit s; it last said \"$state\""
        fi
        if [ "${now%%.*}" -ge "$look" ]; then
            is_alive "$its_name" || die_of "$its_name" "has ended"
            look=$((look + LOOK_S))
            say "waiting for $its_name"
        fi
        sleep 0.2
    done
}

is_alive() {
    # Running, blocked or paused; none of shut down, crashed and dying.
    xl list "$1" 2>/dev/null | awk 'NR == 2 && $5 !~ /[scd]/ { alive = 1 } END { exit !alive }'
}

die_of() {
    echo "the end of the console of $1:" >&2
    tail -n 20 "$(console "$1")" >&2
    fail "the guest $1 $2"
}

# parameters NAME KEY=VALUE...: budget, period in ns; priority; extratime 0 or 1; weight; cap in percent.
# Of Xen's own schedulers each takes what it knows.
parameters() {
    name=$1
    shift
    scheduler
    budget='' period='' extratime='' weight='' cap=''
    case $running_scheduler in
    laxity)
        do_or_fail laxity-sched set "$name" "$@"
        return
        ;;
    esac
    for pair; do
        case $pair in
        budget=* | period=* | extratime=* | weight=* | cap=*) eval "${pair%%=*}=\${pair#*=}" ;;
        esac
    done
    case $running_scheduler in
    credit | credit2)
        do_or_fail xl "sched-$running_scheduler" -d "$name" ${weight:+-w "$weight"} ${cap:+-c "$cap"}
        ;;
    rtds)
        do_or_fail xl sched-rtds -d "$name" -v all ${period:+-p $((period / 1000))} \
            ${budget:+-b $((budget / 1000))} ${extratime:+-e "$extratime"}
        ;;
    null) ;;
    *) fail "no parameters are known of Xen's scheduler $running_scheduler" ;;
    esac
}

# policy NAME: of Laxity's scheduler
policy() {
    policy_of_runs=$1
    policy_between_runs
}

# Guests of periodic servers use their budgets up while they do nothing. If those are all of a CPU, or more while they
# are changed, dom0 has no time to change them. So between runs they are deferrable.
policy_between_runs() {
    case $policy_of_runs in
    periodic) do_or_fail laxity-sched set --pool Pool-0 policy=deferrable ;;
    *) do_or_fail laxity-sched set --pool Pool-0 "policy=$policy_of_runs" ;;
    esac
}

# settings KEY=NS...: quantum, time-slice, tick, accounting; of stock credit time-slice alone
settings() {
    scheduler
    if [ "$running_scheduler" = laxity ]; then
        do_or_fail laxity-sched set --pool Pool-0 "$@"
        return
    fi
    for pair; do
        case $running_scheduler.$pair in
        credit.time-slice=*) do_or_fail xl sched-credit -s -t $((${pair#*=} / 1000000)) ;;
        *) fail "Xen's scheduler $running_scheduler has no setting ${pair%%=*}" ;;
        esac
    done
}

# network BRIDGE ADDRESS/BITS: in dom0, for the interfaces of guests
network() {
    if [ -d "$LAXITY/modules" ]; then
        for module in "$LAXITY"/modules/*; do
            do_or_fail insmod "$module"
        done
    else
        # A host's own kernel has them at hand, or in it.
        modprobe -a bridge xen-netback 2>/dev/null || :
    fi
    # For who tidies up after us.
    echo "$1" >"$RESULTS/bridge"
    if ! (do_or_fail ip link add "$1" type bridge); then
        rm "$RESULTS/bridge"
        exit 1
    fi
    do_or_fail ip address add "$2" dev "$1"
    do_or_fail ip link set "$1" up
}

# pin NAME MASK...: where each of its VCPUs may run
pin() {
    name=$1 vcpu=0
    shift
    for mask; do
        do_or_fail xl vcpu-pin "$name" "$vcpu" "$mask"
        vcpu=$((vcpu + 1))
    done
}

# connect NAME ADDRESS/BITS: what a guest's interface will be
connect() {
    find_domain "$1"
    do_or_fail xenstore-write "$store/network" "$2"
}

# program NAME PATH ARGUMENT...: what a guest runs beside its tasks
program() {
    name=$1
    find_domain "$name"
    shift
    do_or_fail xenstore-write "$store/program" "$(printf '%s\n' "$@")"
    programs="$programs $name"
}

# pages N: Xen's trace buffers, which are made for the first window, get so many
pages() {
    pages=$1
}

# calls ADDRESS:PORT STREAMS SAMPLE PAGES: of the next window, through the media server that is told of calls there; the
# times of packets are kept of one in SAMPLE; Xen's trace buffers get so many pages
calls() {
    media_server=$1 streams=$2 sample=$3 pages=$4
}

# tasks NAME RUN "cost_ns,period_ns,deadline_ns,offset_ns,vcpu;..." CPU_BOUND TELLS: what a guest does in that run
tasks() {
    find_domain "$1"
    mkdir -p "$RESULTS/$2"
    echo "$1" >>"$RESULTS/$2/guests"
    list=$store/tasks
    xenstore-rm "$list" 2>/dev/null || :
    rest=$3
    if [ ${#rest} -le $NODE_BYTES ]; then
        do_or_fail xenstore-write "$list" "$rest"
        rest=
    fi
    piece=0
    while [ -n "$rest" ]; do
        do_or_fail xenstore-write "$list/$piece" "$(echo "$rest" | cut -c "1-$NODE_BYTES")"
        rest=$(echo "$rest" | cut -c "$((NODE_BYTES + 1))-")
        piece=$((piece + 1))
    done
    do_or_fail xenstore-write "$store/cpu_bound" "$4"
    do_or_fail xenstore-write "$store/tells" "$5"
}

# window RUN DURATION_NS EVENTS LEAD_S [still]: one run, in all guests that have tasks for it, from one instant on,
# which is so many whole seconds away. A run that began before all was ready is tried again. With "still" dom0's
# kernel does not wake for itself meanwhile.
window() {
    run=$1 duration=$2 into=$RESULTS/$1 ahead=$4 still=${5:-} tries=1
    scheduler
    until try_window "$3"; do
        [ "$tries" -lt "$TRIES" ] || fail "run $run began before $late was ready in each of $TRIES tries"
        ahead=$((ahead * 2)) tries=$((tries + 1))
        say "run $run began before $late was ready; again, with $ahead s for that"
    done
    while read -r name; do
        find_domain "$name"
        do_or_fail xenstore-write "$store/report" "$run"
        wait_for "$name" "$REPORT_S" "done $run"
        wait_for_report "$name"
        sed -n "/^laxity-report $run /,/^laxity-report-end $run/p" "$(console "$name")" >"$into/$name.jobs"
        [ -z "$programs" ] ||
            sed -n "/^laxity-output $run/,/^laxity-output-end $run/p" "$(console "$name")" >"$into/$name.output"
    done <"$into/guests"
    counters "$into/counters-after.json"
    say "run $run is done"
}

# wait_for_report NAME: until all of a guest's report is here. What it writes comes by another way than what it says in
# xenstore, and may come later.
wait_for_report() {
    read -r now _ </proc/uptime
    until=$((${now%%.*} + REPORT_S))
    until grep -q "^laxity-report-end $run[[:space:]]*\$" "$(console "$1")"; do
        read -r now _ </proc/uptime
        [ "${now%%.*}" -lt "$until" ] || die_of "$1" "has not written all of its report in $REPORT_S s"
        sleep 0.2
    done
}

# try_window EVENTS: one try, during which dom0 does nothing. False, with who is to blame in $late, if somebody was not
# ready.
try_window() {
    late=
    [ -z "${policy_of_runs:-}" ] || do_or_fail laxity-sched set --pool Pool-0 "policy=$policy_of_runs"
    counters "$into/counters-before.json"
    # Laxity's budgets begin with the run, as do its ticks: as in the simulator, when who got a job at that instant has
    # woken.
    if [ "$running_scheduler" = laxity ]; then
        budgets=$(laxity-sched align Pool-0 "${ahead}s") || fail "laxity-sched align failed"
        start=$((budgets - WAKES_NS))
    else
        start=$((($(date +%s) + ahead) * SECOND_NS))
    fi
    rm -f "$into/trace.log"
    laxity-trace record --events "$1" ${pages:+--pages "$pages"} --until $((start + duration)) "$into/trace.bin" >"$into/trace.log" 2>&1 &
    tracer=$!
    until grep -qs recording "$into/trace.log"; do
        if ! kill -0 $tracer 2>/dev/null; then
            # It refuses a run that is over: a try that came too late, as when dom0 is late below.
            [ $(($(date +%s) * SECOND_NS)) -lt $((start + duration)) ] || {
                tracer= late=dom0
                return 1
            }
            fail "laxity-trace: $(cat "$into/trace.log")"
        fi
        sleep 0.05
    done
    # A guest's clock is set by dom0's, at the instant when tracing began: the TSC and CLOCK_REALTIME.
    clock=$(sed -n 's/^recording //p' "$into/trace.log")
    : >"$into/domids"
    set --
    while read -r name; do
        find_domain "$name"
        echo "$name $number" >>"$into/domids"
        set -- "$@" "$store/clock" "$clock" "$store/run" "$run $start $duration"
    done <"$into/guests"
    do_or_fail xenstore-write "$@"
    if [ $(($(date +%s) * SECOND_NS)) -ge $start ]; then
        late=dom0
    elif [ "$streams" -gt 0 ]; then
        # A media server of the try before would be told of the calls, and end with them.
        for name in $programs; do
            wait_for "$name" "$READY_S" "serves $run $start" "ran $run $start" "late $run $start"
            case $state in late*) late=$name ;; esac
        done
        # With a guest that is late its media server has ended.
        [ -n "$late" ] || {
            laxity-media calls --json --media-server "$media_server" --streams "$streams" --duration "$duration ns" \
                --begin "$start" --packets "$into/packets" --sample "$sample" >"$into/calls.json" 2>"$into/calls.log" &
            parties=$!
        }
    fi
    [ -n "$late" ] || say "run $run: quiet for $((duration / SECOND_NS + ahead)) s"
    [ -z "$still" ] || [ -n "$late" ] || do_or_fail laxity-still $((start + duration))
    wait $tracer || fail "laxity-trace: $(cat "$into/trace.log")"
    tracer=
    # The media server serves until its guest is asked for a report, or finds that it is late, which may take it long.
    if [ -n "${parties:-}" ]; then
        while kill -0 "$parties" 2>/dev/null; do
            for name in $programs; do
                find_domain "$name"
                case $(xenstore-read "$store/state" 2>/dev/null) in "late $run $start "*) late=$name ;; esac
            done
            [ -z "$late" ] || kill "$parties" 2>/dev/null || true
            sleep 0.2
        done
        wait "$parties" || case $? in
        "$LATE") late=${late:-the calls} ;;
        *) [ -n "$late" ] || fail "laxity-media: $(cat "$into/calls.log")" ;;
        esac
    fi
    parties=
    echo "$start" >"$into/start"
    [ -z "${policy_of_runs:-}" ] || policy_between_runs
    while read -r name; do
        wait_for "$name" "$REPORT_S" "ran $run $start" "late $run $start"
        case $state in late*) late=$name ;; esac
    done <"$into/guests"
    [ -z "$late" ]
}

counters() {
    [ "$running_scheduler" != laxity ] || laxity-sched get --json >"$1"
}
