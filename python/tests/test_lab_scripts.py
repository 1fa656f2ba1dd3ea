"""What a plan says in dom0 (xen/lab/lib.sh), with programs that stand in for Xen's and ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "xen" / "lab" / "lib.sh"

SHELLS = [["sh"], *([["busybox", "sh"]] if shutil.which("busybox") else [])]

STORE = 'file="$STORE/$(echo "$1" | tr / _)"'

PROGRAMS = {
    # Numbers domains from 1, and says what it was asked.
    "xl": """
echo "xl $*" >>$LOG
case $1 in
domid) grep -n "^xl create" $LOG | wc -l ;;
info) echo "xen_scheduler          : $SCHEDULER" ;;
list) printf 'Name ID Mem VCPUs State Time\\n%s 1 96 1 %s 0.0\\n' "$2" "${STATE:--b----}" ;;
esac
""",
    "xenstore-read": f'{STORE}; [ -f "$file" ] && cat "$file"',
    "xenstore-rm": 'rm "$STORE/$(echo "$1" | tr / _)"*',
    # The guest is there, too: it runs what it is given, is late as often as `late` says, reports.
    # One with a program takes a while to start it, and ends it if it is late.
    "xenstore-write": f"""
while [ $# -gt 0 ]; do
    {STORE}
    echo "$2" >"$file"
    case $1 in
    */run)
        late=$(cat "$STORE/late" 2>/dev/null || echo 0) state=ran
        [ "$late" = 0 ] || {{ state=late; echo $((late - 1)) >"$STORE/late"; }}
        if [ -f "${{file%run}}program" ]; then
            (
                sleep 0.5
                if [ "$state" = late ] && [ -f "$STORE/late-before" ]; then
                    echo "late ${{2% *}} 9" >"${{file%run}}state"
                    exit
                fi
                echo "serves $2" >>$LOG
                echo "serves $2" >"${{file%run}}state.new"
                mv "${{file%run}}state.new" "${{file%run}}state"
                until grep -q "^media .*--begin $(echo "$2" | cut -d " " -f 2) " $LOG; do
                    sleep 0.1
                done
                if [ -f "$STORE/late-at-last" ]; then sleep 1; rm "$STORE/late-at-last"; fi
                echo "$state ${{2% *}} 9" >"${{file%run}}state"
            ) >/dev/null 2>&1 &
        else
            echo "$state ${{2% *}}" >"${{file%run}}state"
        fi
        ;;
    */report) echo "done $2" >"${{file%report}}state" ;;
    esac
    shift 2
done
""",
    "laxity-sched": """
[ "$SCHEDULER" = "(null)" ] || exit 1
echo "sched $*" >>$LOG
if [ "$1" = align ]; then echo $((($(date +%s) + ${3%s}) * 1000000000)); else echo "{}"; fi
""",
    "insmod": 'echo "insmod ${1##*/}" >>$LOG',
    "modprobe": 'echo "modprobe $*" >>$LOG; exit 1',
    "ip": 'echo "ip $*" >>$LOG; [ "$2 $3" != "add taken" ] || { echo File exists >&2; exit 2; }',
    "laxity-media": """
[ ! -f "$STORE/late-after" ] && [ ! -f "$STORE/late-at-last" ] ||
    { echo "media $*" >>$LOG; exec sleep 1000; }
echo "media $*" >>$LOG
[ "$SCHEDULER" = "(null)" ] || { echo 'error: it does not answer' >&2; exit 2; }
[ ! -f "$STORE/late-calls" ] || { rm "$STORE/late-calls"; exit 1; }
while [ "$1" != --packets ]; do shift; done
echo packets >"$2"
echo '{"calls": 1}'
""",
    "laxity-trace": """
while [ $# -gt 1 ]; do shift; done
echo recording 123 456; sleep 0.2; echo traced >"$1"
if [ -f "$STORE/late-after" ]; then
    until grep -qs ^late "$STORE"/*state; do sleep 0.1; done
    rm "$STORE/late-after"
fi
""",
}


@dataclass
class Dom0:
    shell: list[str]
    home: Path
    scheduler: str = "(null)"
    state: str = "-b----"
    limit_s: int = 600
    """For a guest to be ready, and to report."""

    def run(self, plan: str, code: int = 0) -> str:
        """What the plan and the programs said."""
        environment = {
            "PATH": f"{self.home}:{os.environ['PATH']}",
            "LAXITY": str(self.home),
            "PLAN": str(self.home / "plan"),
            "RESULTS": str(self.results),
            "STORE": str(self.home / "store"),
            "LOG": str(self.home / "log"),
            "SCHEDULER": self.scheduler,
            "STATE": self.state,
        }
        limits = f"READY_S={self.limit_s} REPORT_S={self.limit_s} LOOK_S=1"
        done = subprocess.run(
            [*self.shell, "-euc", f'. "{LIBRARY}"; {limits}; {plan}'],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def results(self) -> Path:
        return self.home / "results"

    @property
    def log(self) -> str:
        return (self.home / "log").read_text()

    def node(self, domid: int, key: str) -> Path:
        return self.home / "store" / f"_local_domain_{domid}_data_laxity_{key}"


@pytest.fixture(params=SHELLS, ids=" ".join)
def dom0(request: pytest.FixtureRequest, tmp_path: Path) -> Dom0:
    for name, script in PROGRAMS.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    for name in ("plan", "results", "store"):
        (tmp_path / name).mkdir()
    (tmp_path / "log").touch()
    console = tmp_path / "console"
    console.touch()
    for domid in (1, 2):
        tty = tmp_path / "store" / f"_local_domain_{domid}_console_tty"
        tty.write_text(f"{console}\n")
    return Dom0(request.param, tmp_path)


def test_domains_are_created_and_started(dom0: Dom0) -> None:
    for domid in (1, 2):
        dom0.node(domid, "state").write_text("ready 7809\n")
    said = dom0.run("create a; create b; start_all; destroy a")
    assert "laxity: a is ready\nlaxity: b is ready\nlaxity: destroyed a\n" in said
    assert (dom0.results / "domids").read_text() == "b 2\n"
    assert f"xl create -e -p -q {dom0.home}/plan/a.cfg" in dom0.log
    assert "xl unpause 1\nxl unpause 2\nxl destroy 1\n" in dom0.log


@pytest.mark.parametrize("code", [0, 1])
def test_a_domain_that_is_being_created_is_on_record(dom0: Dom0, code: int) -> None:
    """And only while it is: it may be destroyed by its name."""
    (dom0.home / "xl").write_text(
        '#!/bin/sh\ncase $1 in create) echo; cat "$RESULTS/creating" >>"$LOG"; '
        f"exit {code} ;; domid) echo 7 ;; esac\n"
    )
    dom0.run("create a", code=code)
    assert dom0.log == "a\n"
    assert not (dom0.results / "creating").exists()


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ("(null)", "sched set a budget=2000000 period=10000000 extratime=1 weight=3 cap=0"),
        ("credit", "xl sched-credit -d a -w 3 -c 0"),
        ("credit2", "xl sched-credit2 -d a -w 3 -c 0"),
        ("rtds", "xl sched-rtds -d a -v all -p 10000 -b 2000 -e 1"),
    ],
)
def test_each_scheduler_takes_the_parameters_it_knows(
    dom0: Dom0, scheduler: str, expected: str
) -> None:
    dom0.scheduler = scheduler
    dom0.run("parameters a budget=2000000 period=10000000 extratime=1 weight=3 cap=0")
    assert expected in dom0.log.splitlines()


def test_settings(dom0: Dom0) -> None:
    dom0.run("policy polling; settings quantum=0 tick=5")
    assert "sched set --pool Pool-0 policy=polling" in dom0.log
    assert "sched set --pool Pool-0 quantum=0 tick=5" in dom0.log
    dom0.scheduler = "credit"
    dom0.run("settings time-slice=30000000")
    assert "xl sched-credit -s -t 30" in dom0.log
    assert "credit has no setting quantum" in dom0.run("settings quantum=0", code=1)


def test_a_window(dom0: Dom0) -> None:
    console = dom0.home / "console"
    report = "laxity-report one 5 0 1\nlaxity-crc 1\nlaxity-report-end one\n"
    console.write_text(f"noise\n{report}laxity-report two 5 0 1\n")
    said = dom0.run(
        "create a; create b; tasks a one '1,2,2,0,0' 1 0; window one 4000000000 0x2f000 60"
    )
    assert "laxity: run one: quiet for 64 s" in said
    into = dom0.results / "one"
    run, start, duration = dom0.node(1, "run").read_text().split()
    assert (run, duration) == ("one", "4000000000")
    assert dom0.node(1, "clock").read_text() == "123 456\n"
    assert (into / "start").read_text().strip() == start
    assert (into / "domids").read_text() == "a 1\n", "b has no tasks in this run"
    assert not dom0.node(2, "run").exists()
    assert (into / "a.jobs").read_text() == report
    assert (into / "trace.bin").read_text() == "traced\n"
    assert dom0.node(1, "cpu_bound").read_text() == "1\n"
    assert dom0.node(1, "tells").read_text() == "0\n"


CONNECTED = (
    "create media; connect media 192.0.2.10/24; program media /laxity-media relay --work '0 ns'; "
    "calls 192.0.2.10:2223 8 2 4000; tasks media one '' 0 0; window one 4000000000 0x2f000 60"
)


def test_calls_in_a_window(dom0: Dom0) -> None:
    console = dom0.home / "console"
    output = 'laxity-output one\n{"relay": 1}\nlaxity-output-end one\n'
    report = "laxity-report one 5 0 1\nlaxity-report-end one\n"
    console.write_text(f"noise\n{output}noise\n{report}")
    dom0.run(CONNECTED)
    assert dom0.node(1, "network").read_text() == "192.0.2.10/24\n"
    assert dom0.node(1, "program").read_text() == "/laxity-media\nrelay\n--work\n0 ns\n"
    into = dom0.results / "one"
    assert (into / "media.output").read_text() == output
    assert (into / "media.jobs").read_text() == report
    assert (into / "calls.json").read_text() == '{"calls": 1}\n'
    # The calls are set up with the media server of this try, and not with one that is still there.
    told = [line.split()[0] for line in dom0.log.splitlines()]
    assert [word for word in told if word in {"serves", "media"}] == ["serves", "media"]
    assert (into / "packets").read_text() == "packets\n"
    begin = (into / "start").read_text().strip()
    for words in (
        "media calls --json --media-server 192.0.2.10:2223 --streams 8 --duration 4000000000 ns ",
        f"--begin {begin} --packets {into}/packets --sample 2\n",
    ):
        assert words in dom0.log


@pytest.mark.slow
@pytest.mark.parametrize(("late", "who"), [("late", "media"), ("late-calls", "the calls")])
def test_a_run_that_began_too_early_is_tried_again(dom0: Dom0, late: str, who: str) -> None:
    (dom0.home / "console").write_text("laxity-report one 5 0 1\nlaxity-report-end one\n")
    (dom0.home / "store" / late).write_text("1\n")
    said = dom0.run(CONNECTED)
    assert f"run one began before {who} was ready; again, with 120 s for that" in said
    assert "run one is done" in said
    assert [line.split()[-1] for line in dom0.log.splitlines() if "align" in line] == [
        "60s",
        "120s",
    ]
    assert (dom0.results / "one/start").read_text().strip() in dom0.node(1, "run").read_text()
    told = [line.split()[0] for line in dom0.log.splitlines()]
    assert [word for word in told if word in {"serves", "media"}] == ["serves", "media"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("when", ["late-before", "late-after", "late-at-last"])
def test_calls_do_not_wait_for_the_media_server_of_a_guest_that_is_late(
    dom0: Dom0, when: str
) -> None:
    (dom0.home / "console").write_text("laxity-report one 5 0 1\nlaxity-report-end one\n")
    (dom0.home / "store" / "late").write_text("1\n")
    (dom0.home / "store" / when).touch()
    said = dom0.run(CONNECTED)
    assert "run one began before media was ready; again, with 120 s for that" in said
    assert "run one is done" in said
    told = [line.split()[0] for line in dom0.log.splitlines()]
    told = [word for word in told if word in {"serves", "media"}]
    assert told == ["serves", "media"] * (1 if when == "late-before" else 2)
    assert (dom0.results / "one/calls.json").read_text() == '{"calls": 1}\n'


def test_a_report_is_read_when_all_of_it_is_there(dom0: Dom0) -> None:
    """The console may be later than what the guest says in xenstore."""
    console = dom0.home / "console"
    begin, end = "laxity-report one 5 0 1\nlaxity-crc 1\n", "laxity-report-end one\n"
    # The report of a run whose name begins alike is there already.
    console.write_text("laxity-report-end one-more\n" + begin)
    later = f'(sleep 2; printf "{end}" >>"$RESULTS/a.console") &'
    dom0.run(f"create a; tasks a one '' 0 0; {later} window one 4000000000 0x2f000 60")
    assert (dom0.results / "one/a.jobs").read_text() == begin + end


def test_a_report_that_does_not_come(dom0: Dom0) -> None:
    (dom0.home / "console").write_text("laxity-report one 5 0 1\n")
    dom0.limit_s = 1
    said = dom0.run("create a; tasks a one '' 0 0; window one 4000000000 0x2f000 60", code=1)
    assert "the guest a has not written all of its report in 1 s" in said


def test_a_guest_that_is_never_ready(dom0: Dom0) -> None:
    (dom0.home / "store" / "late").write_text("99\n")
    said = dom0.run("create a; tasks a one '' 0 0; window one 4000000000 0x2f000 60", code=1)
    assert "error: run one began before a was ready in each of 6 tries" in said


def test_calls_that_fail_say_why(dom0: Dom0) -> None:
    dom0.scheduler = "credit"
    said = dom0.run(CONNECTED, code=1)
    assert "laxity-media: error: it does not answer" in said


def test_a_network_in_dom0(dom0: Dom0) -> None:
    modules = dom0.home / "modules"
    modules.mkdir()
    for name in ("1-bridge.ko", "0-llc.ko"):
        (modules / name).touch()
    dom0.run("network laxity0 192.0.2.1/24; pin Domain-0 0,1 2")
    assert dom0.log.splitlines() == [
        *("insmod 0-llc.ko", "insmod 1-bridge.ko"),
        "ip link add laxity0 type bridge",
        "ip address add 192.0.2.1/24 dev laxity0",
        "ip link set laxity0 up",
        *("xl vcpu-pin Domain-0 0 0,1", "xl vcpu-pin Domain-0 1 2"),
    ]
    made = dom0.home / "results/bridge"
    assert made.read_text() == "laxity0\n"
    assert "ip link add taken type bridge failed: File exists" in dom0.run(
        "network taken 192.0.2.1/24", code=1
    )
    assert not made.exists(), "it is somebody else's"


def test_a_network_on_a_host_with_modules_of_its_own(dom0: Dom0) -> None:
    """They may be in its kernel."""
    dom0.run("network laxity0 192.0.2.1/24")
    assert dom0.log.splitlines()[:2] == [
        "modprobe -a bridge xen-netback",
        "ip link add laxity0 type bridge",
    ]


HOTPLUG = LIBRARY.with_name("vif")


@pytest.mark.parametrize("bridge", ["laxity0", None])
def test_an_interface_joins_the_bridge(dom0: Dom0, bridge: str | None) -> None:
    backend = dom0.home / "store" / "_backend_bridge"
    if bridge:
        backend.write_text(f"{bridge}\n")
    environment = {
        "PATH": f"{dom0.home}:{os.environ['PATH']}",
        "STORE": str(dom0.home / "store"),
        "LOG": str(dom0.home / "log"),
        "vif": "vif3.0",
        "XENBUS_PATH": "/backend",
    }
    # Its own PATH begins with dom0's /bin, where this machine's ip is.
    script = HOTPLUG.read_text().replace("PATH=/bin:", "PATH=")
    done = subprocess.run(
        [*dom0.shell, "-c", script, "vif", "online"], env=environment, check=False, timeout=600
    )
    status = (dom0.home / "store" / "_backend_hotplug-status").read_text()
    if bridge:
        assert (done.returncode, status) == (0, "connected\n")
        assert dom0.log == "ip link set vif3.0 master laxity0\nip link set vif3.0 up\n"
    else:
        assert (done.returncode, status) == (1, "error\n")


@pytest.mark.parametrize("has_plug", [True, False])
def test_the_output_of_an_interface_is_held_and_let_go(dom0: Dom0, has_plug: bool) -> None:
    tc = dom0.home / "tc"
    tc.write_text(f'#!/bin/sh\necho "tc $*" >>$LOG\n[ "$6" != plug ] || {str(has_plug).lower()}\n')
    tc.chmod(0o755)
    environment = {
        "PATH": f"{dom0.home}:{os.environ['PATH']}",
        "STORE": str(dom0.home / "store"),
        "LOG": str(dom0.home / "log"),
        "vifname": "vif3.0",
        "XENBUS_PATH": "/remus",
        "REMUS_IFB": "buf-vif3.0",
    }
    script = HOTPLUG.with_name("netbuf").read_text().replace("PATH=/sbin:/usr/sbin:/bin:", "PATH=")

    def run(order: str) -> int:
        command = [*dom0.shell, "-c", script, "netbuf", order]
        return subprocess.run(command, env=environment, check=False, timeout=600).returncode

    store = dom0.home / "store"
    code, status = run("setup"), (store / "_remus_hotplug-status").read_text()
    if not has_plug:
        # libxl gives Remus up then, and does not call what nobody holds protected.
        assert (code, status) == (1, "error\n")
        assert "sch_plug" in (store / "_remus_hotplug-error").read_text()
        return
    assert (code, status) == (0, "connected\n")
    assert (store / "_remus_ifb").read_text() == "buf-vif3.0\n"
    before, plug, opened, ingress, filtered = dom0.log.rstrip().rsplit("\n", 4)
    assert before.startswith("ip link add buf-vif3.0 type ifb")
    assert plug.startswith("tc qdisc add dev buf-vif3.0 root plug")
    assert opened == "tc qdisc change dev buf-vif3.0 root plug release_indefinite"
    assert ingress == "tc qdisc add dev vif3.0 ingress"
    # All of it, not IP alone.
    assert "dev vif3.0" in filtered
    assert "protocol all" in filtered
    assert filtered.endswith("redirect dev buf-vif3.0")
    assert [run("teardown"), run("teardown")] == [0, 0]
    assert "ip link delete buf-vif3.0" in dom0.log
    assert not (store / "_remus_ifb").exists()


def test_long_lists_of_tasks_are_cut_into_pieces(dom0: Dom0) -> None:
    tasks = ";".join(f"{cost},200000000,200000000,0,0" for cost in range(1000, 1200))
    dom0.run(f"create a; tasks a one '{tasks}' 0 0")
    pieces = sorted(dom0.home.glob("store/*_tasks_*"), key=lambda path: int(path.name[-1]))
    assert len(pieces) > 1
    assert "".join(piece.read_text().rstrip("\n") for piece in pieces) == tasks
    dom0.run("create a; tasks a two '1,2,2,0,0' 0 0")
    assert not list(dom0.home.glob("store/*_tasks_*")), "pieces of an earlier run are gone"


@pytest.mark.parametrize(
    ("state", "flags", "expected"),
    [
        (None, "-b----", 'a has not said "ready" in 1 s'),
        (None, "---sc-", "the guest a has ended"),
        ("error tasks: too many", "-b----", "a says: tasks: too many"),
    ],
)
def test_a_guest_that_fails(dom0: Dom0, state: str | None, flags: str, expected: str) -> None:
    (dom0.home / "console").write_text("last words\n")
    dom0.state = flags
    if state:
        dom0.node(1, "state").write_text(f"{state}\n")
    if state is None and "s" not in flags:
        dom0.limit_s = 1
    said = dom0.run("create a; start_all", code=1)
    assert f"laxity: error: {expected}" in said or f"laxity: error: the guest {expected}" in said
    assert expected in (dom0.results / "error").read_text()
    if state is None:
        assert "last words" in said


def test_a_domain_that_the_plan_did_not_create(dom0: Dom0) -> None:
    dom0.run("create a")
    assert "has created no domain b" in dom0.run("tasks b one '' 0 0", code=1)
