#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Carries out a plan on a real host, in dom0 as root.
#
#   visit.sh HOME           HOME has programs, scripts and plan/, and gets results/
#   visit.sh --leave HOME   ends what is still at work there, and destroys the domains that it created
set -u

leave() {
    if [ -f "$1/pid" ]; then
        kill "$(cat "$1/pid")" 2>/dev/null && sleep 1
        rm -f "$1/pid"
    fi
    if [ -f "$1/results/domids" ]; then
        while read -r name domid; do
            # By number: a name may have gone to another domain since.
            [ "$(xl domid "$name" 2>/dev/null)" != "$domid" ] || xl destroy "$domid"
        done <"$1/results/domids"
    fi
}

if [ "$1" = --leave ]; then
    leave "$2"
    exit 0
fi
LAXITY=$1 PLAN=$1/plan RESULTS=$1/results
export LAXITY PLAN RESULTS
mkdir -p "$RESULTS"
echo $$ >"$1/pid"
trap 'rm -f "$LAXITY/pid"; leave "$LAXITY"' EXIT
trap 'exit 1' HUP INT TERM
. "$LAXITY/lib.sh"
. "$PLAN/plan.sh"
