#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Carries out a plan on a real host, in dom0 as root.
#
#   visit.sh HOME           HOME has programs, scripts and plan/, and gets results/
#   visit.sh --leave HOME   ends what is still at work there, destroys the domains and the bridge that it
#                           made, and does what restore.sh says, if it is there
#
# It ends by itself when nobody listens to it any more.
set -u

# What it may do before it hears that it shall end, and what it then does to tidy up: a busy host takes
# minutes to create a domain. Whoever kills it earlier leaves its tracer behind.
END_S=300

leave() {
    # Who is ending is not to be ended in the middle: what follows would be done again.
    trap '' HUP INT PIPE TERM
    # Else it would trace until the end of the run.
    [ -z "${tracer:-}" ] || { kill "$tracer" && wait "$tracer"; } 2>/dev/null
    [ -z "${parties:-}" ] || { kill "$parties" && wait "$parties"; } 2>/dev/null
    if [ -f "$1/results/domids" ]; then
        while read -r name domid; do
            # By number: a name may have gone to another domain since.
            [ "$(xl domid "$name" 2>/dev/null)" != "$domid" ] || xl destroy "$domid"
        done <"$1/results/domids"
    fi
    # One that was about to get its number.
    if [ -f "$1/results/creating" ] && domid=$(xl domid "$(cat "$1/results/creating")" 2>/dev/null); then
        xl destroy "$domid"
    fi
    if [ -f "$1/results/bridge" ]; then
        ip link delete "$(cat "$1/results/bridge")" && rm "$1/results/bridge"
    fi
    # What the scheduler was told before we came. Once: whoever comes next may tell it something else.
    if [ -f "$1/restore.sh" ]; then
        sh "$1/restore.sh" && rm "$1/restore.sh"
    fi
}

# end_visit HOME: returns when it has ended
end_visit() {
    [ -f "$1/pid" ] || return
    pid=$(cat "$1/pid") left=$END_S
    kill "$pid" 2>/dev/null
    while [ "$left" -gt 0 ] && kill -0 "$pid" 2>/dev/null; do
        sleep 1
        left=$((left - 1))
    done
    kill -KILL "$pid" 2>/dev/null
}

if [ "$1" = --leave ]; then
    end_visit "$2"
    leave "$2"
    exit
fi
LAXITY=$1 PLAN=$1/plan RESULTS=$1/results
export LAXITY PLAN RESULTS
mkdir -p "$RESULTS"
echo $$ >"$1/pid"
trap 'leave "$LAXITY"; rm -f "$LAXITY/pid"' EXIT
trap 'exit 1' HUP INT PIPE TERM
. "$LAXITY/lib.sh"
. "$PLAN/plan.sh"
