"""The command line: takes words apart, calls the API, prints. Nothing is computed here."""

from __future__ import annotations

import filecmp
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from laxity import _core, call_tables, calls, programs, tables, tracefile
from laxity import directory as directories
from laxity.appliances import image as appliances
from laxity.errors import HostError, InputError, core_errors
from laxity.host import Host, overrides_of
from laxity.lab.errors import LabError
from laxity.lab_commands import lab
from laxity.linux import users as registrar_users
from laxity.site_command import site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from laxity.lab.plan import Mode
    from laxity.lab.where import Place
    from laxity.reproduce import Reproduction
    from laxity.reproduce.rt_xen.on_xen.model import Calibration
    from laxity.results import Run

FAILED_VERDICT = 1
BAD_INPUT = 2
FAILED_MACHINE = 3
OUR_MISTAKE = 70
INTERRUPTED = 130

TRACEBACK_VARIABLE = "LAXITY_TRACEBACK"

PROGRESS_AFTER_S = 1.0
"""What takes less long shows no bar."""

app = typer.Typer(
    name="laxity",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all well; 1 a verdict failed (check, diff, reproduce, "
    "run --check-determinism, and with --strict run, compare, sweep, capacity); 2 bad input; "
    "3 the machine failed (--on xen).",
)
app.add_typer(lab)


def _examples(*commands: str) -> str:
    """For the end of a help text, lines kept as they are."""
    return "\n".join(["\b", "Examples:", *(f"  laxity {command}" for command in commands)])


HostArgument = Annotated[
    Path, typer.Argument(metavar="HOST", help="The host file; - is the standard input.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key of the host file; may be repeated."
    ),
]
PolicyOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The scheduling policy, in place of the file's.")
]
PoliciesOption = Annotated[
    str | None, typer.Option("--policy", metavar="NAME,NAME,...", help="The policies, with commas.")
]
SeedOption = Annotated[
    int | None, typer.Option(metavar="N", help="The seed, in place of the file's.")
]
DurationOption = Annotated[
    str | None, typer.Option(metavar="TIME", help='How long the run lasts, such as "5 s".')
]
LongOption = Annotated[
    bool,
    typer.Option("--long", help="Also run what is estimated to take more than an hour."),
]
SeedsOption = Annotated[
    int,
    typer.Option(
        "--seeds", metavar="N", min=1, help="Run with this many seeds, one after the other."
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit code 1 if a deadline was missed, or calls were not accepted."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Also write all that was found here."),
]
OnOption = Annotated[
    Literal["sim", "xen"],
    typer.Option("--on", metavar="sim|xen", help="The simulator, or the real hypervisor."),
]
OnAnyOption = Annotated[
    Literal["sim", "xen", "linux"],
    typer.Option(
        "--on",
        metavar="sim|xen|linux",
        help="The simulator, the real hypervisor, or this machine with real packets.",
    ),
]
MediaServerOption = Annotated[
    Literal["laxity", "rtpengine"],
    typer.Option(
        "--media-server",
        metavar="laxity|rtpengine",
        help="With --on linux: whose media server it is.",
    ),
]
AtOption = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="With --on xen: emulator, local (this is dom0) or ssh://root@HOST.",
    ),
]
ModeOption = Annotated[
    Literal["repeatable", "live"],
    typer.Option(
        "--mode",
        metavar="repeatable|live",
        help="With --on xen: the same bytes every time, on one CPU; or time as on the wall.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="NAME",
        help="With --on xen: Xen's own credit, credit2, rtds or null in place of the policy.",
    ),
]


def _show_version(value: bool) -> None:
    if value:
        print(f"laxity {_core.__version__}")
        raise typer.Exit


@app.callback()
def laxity(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Know how late your virtual machines can be, and keep them inside it."""
    del version


@app.command(
    epilog=_examples(
        "check examples/integrator.toml",
        "check examples/integrator.toml --budgets",
        "check examples/integrator.toml --set 'domain.control.budget=400 us'",
    )
)
def check(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    budgets: Annotated[
        bool,
        typer.Option("--budgets", help="Also the smallest budget of each domain at its period."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Will every deadline hold? Bounds by analysis.

    For each task a bound on its response time, and the test that gave it, before anything runs.
    Calls are not analysed: it says so, and what to run instead. Exit code 1 unless all is
    guaranteed.
    """
    file = Host.load(host)
    result = file.check(policy=policy, seed=seed, set=settings or ())
    smallest = (
        file.minimum_budgets(policy=policy, seed=seed, set=settings or ()) if budgets else None
    )
    if as_json:
        content = result.to_json()
        if smallest is not None:
            content["budgets"] = [vars(budget) for budget in smallest]
        _print_json(content)
    else:
        _print(tables.check(result, smallest))
    if not result.is_schedulable:
        raise typer.Exit(FAILED_VERDICT)


@app.command(
    epilog=_examples(
        "run examples/rt-xen.toml",
        "run examples/rt-xen.toml --policy sedf --seed 7 --duration '10 s'",
        "run examples/rt-xen.toml --set draw.load=0.8 --json",
        "run examples/integrator.toml -o out",
        "run examples/rt-xen.toml --on xen --duration '10 s' -o out",
        "run examples/telephony.toml --on linux --set host.cpus=2",
    )
)
def run(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    on: OnAnyOption = "sim",
    at: AtOption = "emulator",
    mode: ModeOption = "repeatable",
    scheduler: SchedulerOption = None,
    media_server: MediaServerOption = "laxity",
    output: OutputOption = None,
    no_trace: Annotated[
        bool, typer.Option("--no-trace", help="With -o: leave out the trace, which may be large.")
    ] = False,
    check_determinism: Annotated[
        bool, typer.Option("--check-determinism", help="Run twice here and compare all bytes.")
    ] = False,
    long: LongOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the host: who is late, and by how much?

    How many jobs of each task met their deadline, how late the others were, what the scheduler
    itself cost.
    """
    xen = _xen(on, at, mode, scheduler)
    _refuse_options(on, mode, media_server, is_repeated=check_determinism)
    file = _simulated(host, long=long)
    is_kept = output is not None and not no_trace

    def once(directory: Path) -> Run:
        """What it writes there are the bytes that a second run must write again."""
        if xen is not None:
            return file.run_on_xen(
                xen,
                seed=seed,
                policy=policy,
                duration=duration,
                set=settings or (),
                scheduler=scheduler,
                keep=directory / directories.XEN,
                say=_say,
            )
        if on == "linux":
            return file.run_on_linux(
                seed=seed,
                policy=policy,
                duration=duration,
                set=settings or (),
                media_server=media_server,
                say=_say,
            )
        with _progress("running") as progress:
            return file.run(
                seed=seed,
                policy=policy,
                duration=duration,
                set=settings or (),
                trace=directory / directories.TRACE if is_kept or check_determinism else None,
                progress=progress,
            )

    difference = None
    with _place(output) as place:
        result = once(place)
        if check_determinism:
            difference = _difference(result, place, once)
        _keep_trace(result, place / directories.TRACE if is_kept else None)
        if result.telephony is not None:
            with _progress("listening") as progress:
                result = calls.scored(result, progress)
        if output is not None:
            result.write(place)
    if as_json:
        _print_json(result.to_json())
    else:
        _print_run(result, file)
        _say_written(output)
    if difference:
        print(f"Not deterministic: two runs differ\n{difference}", end="", file=sys.stderr)
        raise typer.Exit(FAILED_VERDICT)
    if check_determinism:
        print("Deterministic: two runs, the same result, the same bytes of trace", file=sys.stderr)
    _judge(result.passed, strict)


def _judge(passed: bool, strict: bool) -> None:
    """Ends the command with exit code 1 if that was asked for."""
    if strict and not passed:
        raise typer.Exit(FAILED_VERDICT)


def _simulated(path: Path, *, long: bool) -> Host:
    """The host of a file, whose runs tell beforehand if they take a while."""
    host = Host.load(path)
    host.long, host.say = long, _say
    return host


def _print_run(result: Run, file: Host) -> None:
    if result.telephony is None:
        _print(tables.run(result))
    else:
        _print(call_tables.run(result, result.telephony, file.resolved(result.origin.overrides)))


@app.command(
    epilog=_examples(
        "capacity examples/telephony.toml --duration '20 s'",
        "capacity examples/telephony.toml --duration '20 s' --seeds 10 -o out",
    )
)
def capacity(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    seeds: SeedsOption = calls.SEEDS,
    duration: DurationOption = None,
    long: LongOption = False,
    output: OutputOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """How many streams does the host carry, and what gives out first?

    Runs the host with more and fewer of them, each load with several seeds. Carried is the greatest
    up to which every load that was tried holds the limits of [calls.acceptance]: loss, delay, and
    the quality of the worst sampled stream. Exit code 1 if nothing is carried; with --strict, if
    less is than the host file asks for.
    """
    file = _simulated(host, long=long)
    overrides = overrides_of(settings or (), policy=policy, seed=seed, duration=duration)
    with _place(output) as place:
        with _status("looking") as say:
            found = calls.capacity(file, overrides, seeds, say)
        if output is not None:
            found.write(place)
    if as_json:
        _print_json(found.to_json())
    else:
        _print(call_tables.capacity(found))
        _say_written(output)
    if found.carried is None:
        raise typer.Exit(FAILED_VERDICT)
    _judge(found.passed, strict)


def _refuse_options(on: str, mode: Mode, media_server: str, *, is_repeated: bool) -> None:
    """Raises InputError for options of a run that do not go together."""
    if is_repeated and (mode == "live" or on == "linux"):
        raise InputError("time on the wall does not repeat", "leave out one of the two options")
    if media_server != "laxity" and on != "linux":
        raise InputError("--media-server is for real packets", "add --on linux")


def _keep_trace(result: Run, path: Path | None) -> None:
    """Moves the trace, if there is one, to where it is kept."""
    if result.trace is None:
        return
    if path is None:
        result.trace.unlink()
    else:
        result.trace.rename(path)


def _xen(on: str, at: str, mode: Mode, scheduler: str | None) -> Place | None:
    """Where Xen runs it; None for the simulator."""
    if on == "xen":
        from laxity.lab import where  # noqa: PLC0415 - only --on xen needs it

        return where.place(at, mode)
    if (at, mode, scheduler) != ("emulator", "repeatable", None):
        raise InputError("--at, --mode and --scheduler are for Xen", "add --on xen")
    return None


def _say(line: str) -> None:
    """What takes minutes tells how far it is; results alone go to the standard output."""
    print(line, file=sys.stderr, flush=True)


def _place(output: Path | None) -> AbstractContextManager[Path]:
    """Where a run may write: for good, or for as long as it takes."""
    return _temporary() if output is None else directories.output(output)


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="laxity.") as directory:
        yield Path(directory)


def _difference(first: Run, directory: Path, once: Callable[[Path], Run]) -> str | None:
    """Runs it again. What differs, for people; None if only the time on the wall does."""
    with _temporary() as place:
        second = once(place)
        names = sorted(
            path.relative_to(directory) for path in directory.rglob("*") if path.is_file()
        )
        others = {path.relative_to(place) for path in place.rglob("*") if path.is_file()}
        different = [
            str(name)
            for name in names
            if name not in others or not filecmp.cmp(directory / name, place / name, shallow=False)
        ]
        if not different and others == set(names):
            results = [
                {**run.to_json(), "engine": {"events": run.engine.events}}
                for run in (first, second)
            ]
            return None if results[0] == results[1] else "the results differ, the traces do not\n"
        assert first.trace is not None  # noqa: S101, for the types: the caller traced it.
        assert second.trace is not None  # noqa: S101, as above.
        with core_errors():
            return _core.diff(str(first.trace), str(second.trace))[1]


@app.command(
    epilog=_examples(
        "compare examples/overload.toml",
        "compare examples/overload.toml --policy credit,deferrable -o out",
        "compare examples/rt-xen.toml --seeds 10",
        "compare examples/overload.toml --on xen --duration '2 s'",
    )
)
def compare(
    host: HostArgument,
    policy: PoliciesOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    seeds: SeedsOption = 1,
    duration: DurationOption = None,
    on: OnOption = "sim",
    at: AtOption = "emulator",
    mode: ModeOption = "repeatable",
    output: OutputOption = None,
    long: LongOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """One workload, several policies, one table.

    By default all policies that the file has parameters for; it says why the others are left out.
    On Xen each run has a boot of its own.
    """
    xen = _xen(on, at, mode, None)
    file = _simulated(host, long=long)
    with _place(output) as place:
        if xen is not None:
            result = file.compare_on_xen(
                _names(policy),
                xen,
                seed=seed,
                seeds=seeds,
                duration=duration,
                set=settings or (),
                keep=place / directories.XEN,
                say=_say,
            )
        else:
            with _progress("comparing") as progress:
                result = file.compare(
                    _names(policy),
                    seed=seed,
                    seeds=seeds,
                    duration=duration,
                    set=settings or (),
                    progress=progress,
                )
        if output is not None:
            result.write(place)
    if as_json:
        _print_json(result.to_json())
    else:
        with_calls = result.runs[0].telephony is not None
        _print((call_tables if with_calls else tables).comparison(result))
        _say_written(output)
    _judge(result.passed, strict)


@app.command(
    epilog=_examples(
        "sweep examples/rt-xen.toml --set draw.load=0.3..1.0:0.05 --seeds 10",
        "sweep examples/rt-xen.toml --set 'domain.dom1.budget=1..5:0.5 ms'",
        "sweep examples/rt-xen.toml --set 'host.quantum=0 ms|1 ms' -o out",
    )
)
def sweep(
    host: HostArgument,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=A..B:STEP",
            help="A range, both ends included; or a list, KEY=A|B|C; or one value. "
            "Several are combined with each other.",
        ),
    ] = None,
    policy: PoliciesOption = None,
    seed: SeedOption = None,
    seeds: SeedsOption = 1,
    duration: DurationOption = None,
    output: OutputOption = None,
    long: LongOption = False,
    strict: StrictOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the host over ranges of values, on all CPUs.

    It names the cheapest point that passes: every deadline is met, and loss and delay of calls are
    accepted. --strict asks that all points do.
    """
    with _place(output) as place:
        with _progress("sweeping") as progress:
            result = _simulated(host, long=long).sweep(
                settings or (),
                seed=seed,
                duration=duration,
                seeds=seeds,
                policies=_names(policy) or (),
                progress=progress,
            )
        if output is not None:
            result.write(place)
    if as_json:
        _print_json(result.to_json())
    else:
        with_calls = "packet_loss_ratio" in result.table.column_names
        _print((call_tables if with_calls else tables).sweep(result))
        _say_written(output)
    _judge(all(point.holds for point in result.points()), strict)


@app.command(
    epilog=_examples("trace out --text", "trace out --perfetto out.pftrace", "trace out --parquet")
)
def trace(
    source: Annotated[
        Path, typer.Argument(metavar="DIR_OR_FILE", help="The output of a run, or a trace.")
    ],
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT", help="The file to write. By default beside the trace; text is printed."
        ),
    ] = None,
    perfetto: Annotated[
        bool, typer.Option("--perfetto", help="For https://ui.perfetto.dev.")
    ] = False,
    text: Annotated[bool, typer.Option("--text", help="A line a record.")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="A table, a row a record.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Export a trace: to Perfetto, as text, as Parquet."""
    if perfetto + text + parquet != 1:
        raise InputError(
            "a trace is exported to one format", "add one of --perfetto, --text and --parquet"
        )
    path = tracefile.find(source)
    if text and (str(out) == "-" or (out is None and not as_json)):
        tracefile.print_text(path, sys.stdout.buffer)
        return
    if perfetto:
        suffix, write = ".pftrace", tracefile.write_perfetto
    elif parquet:
        suffix, write = ".parquet", tracefile.write_parquet
    else:
        suffix, write = ".txt", tracefile.write_text
    out = out or path.with_suffix(suffix)
    if out.exists() and out.samefile(path):
        raise InputError(f"{out} is the trace itself", "name another file to write")
    write(path, out)
    if as_json:
        _print_json({"trace": str(path), "written": str(out)})
    else:
        print(f"wrote {out}")


@app.command(
    epilog=_examples("diff out-deferrable out-periodic", "diff a.laxtrace b.laxtrace --json")
)
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="The output of a run, or a trace.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    as_json: JsonOption = False,
) -> None:
    """Where do two traces part?

    Exit code 0 if they do not: the same records of the same run, on whatever substrates.
    """
    paths = tracefile.find(a), tracefile.find(b)
    with core_errors():
        is_equal, for_people, difference = _core.diff(str(paths[0]), str(paths[1]))
    if as_json:
        _print_json({"equal": is_equal, **json.loads(difference)})
    else:
        print(for_people, end="")
    if not is_equal:
        raise typer.Exit(FAILED_VERDICT)


PASSED_ON = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""Of commands whose words are for another program."""


def _pass_on(name: str, words: list[str]) -> None:
    files = [Path(word) for word in words if word.endswith(".toml")]
    program = programs.find(name, *files)
    sys.stdout.flush()
    os.execv(program, [str(program), *words])  # noqa: S606 - signals are the program's


@app.command(context_settings=PASSED_ON, epilog=_examples("bandwidth --help"))
def bandwidth(context: typer.Context) -> None:
    """Hold virtual machines to agreements about a link: check, run, status.

    Passes everything on to the daemon's own program; `laxity bandwidth --help` shows what it takes.
    """
    _pass_on("laxity-bandwidth", context.args)


@app.command(context_settings=PASSED_ON, epilog=_examples("protect --help"))
def protect(context: typer.Context) -> None:
    """Keep virtual machines going when their host fails: check, keys, run, status, switchover.

    Passes everything on to the daemon's own program; `laxity protect --help` shows what it takes.
    """
    _pass_on("laxity-protect", context.args)


@app.command(epilog=_examples("appliance signalling", "appliance media -o vms"))
def appliance(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="signalling (Kamailio), or media (RTP relay).")
    ],
    directory: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Where its two files go.")
    ] = Path("appliances"),
    users: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of signalling: who may register and call, as htdigest writes it: "
            "USER:REALM:HA1 a line. Without it anybody may.",
        ),
    ] = None,
) -> None:
    """Make a virtual machine with one server, of Debian's packages: small, without a disk.

    Writes a kernel and NAME.cpio, which any QEMU boots in seconds. What it serves at is on the
    kernel's command line: address=192.0.2.10/24.
    """
    accounts = None if users is None else registrar_users.read(users)
    made = appliances.build(name, directory, _say, accounts)
    for path in (made.kernel, made.root):
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")


app.command(
    epilog=_examples("site examples/site.toml", "site examples/site.toml --duration '5 min'")
)(site)


@app.command(epilog=_examples("run examples/integrator.toml -o out", "report out"))
def report(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What run, compare, sweep or reproduce wrote with -o."),
    ],
    window: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO",
            help='What the timeline of a run shows: "1.2 s..1.3 s". By default around the first '
            "missed deadline or lost packet, or a host's failure.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report with plots.

    One self-contained HTML file, and its plots as PNG and SVG beside it.
    """
    directories.Manifest.load(directory)
    from laxity import report as reports  # noqa: PLC0415 - Matplotlib takes a second to load

    written = reports.write(directory, None if window is None else _window(window))
    if as_json:
        _print_json({"directory": str(directory), "report": str(written)})
    else:
        print(f"wrote {written}")


@app.command(
    epilog=_examples(
        "reproduce rt-xen --quick",
        "reproduce rt-xen figure-6 --seeds 100",
        "reproduce rt-xen table-2 --on xen",
        "reproduce bandwidth drops --on linux",
    )
)
def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PAPER", help="rt-xen, telephony, soft-real-time, bandwidth or availability."
        ),
    ],
    experiment: Annotated[
        str | None, typer.Argument(metavar="EXPERIMENT", help="By default all of the paper.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, fewer seeds.")] = False,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Random seeds at each point.")
    ] = None,
    on: OnAnyOption = "sim",
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="With --on xen, in a checkout: write the costs that were measured into it, as the "
            "simulator's.",
        ),
    ] = False,
    output: OutputOption = None,
    docs: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Write the results as a page of documentation."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Published against ours, with a verdict.

    Runs the experiments of a paper again and sets the results beside the published ones.
    """
    from laxity import reproduce as papers  # noqa: PLC0415 - only this command needs them

    if output is not None:
        directories.refuse_unless_ours(output)
    if on == "xen":
        _refuse_on_xen(experiment, quick, seeds, calibrate)
        result, calibration = papers.run_on_xen(paper, experiment, quick, _say)
        if calibrate:
            _calibrate(calibration)
    elif calibrate:
        raise InputError("costs are measured on Xen", "add --on xen, or leave --calibrate out")
    elif on == "linux":
        if seeds is not None:
            raise InputError("real packets have no seeds", "leave --seeds out")
        result = papers.run_on_linux(paper, experiment, quick)
    else:
        with _progress("reproducing") as progress:
            result = papers.run(paper, experiment, quick, seeds, progress)
    if docs is not None:
        result.write_docs(docs)
    _give(result, output, as_json)


def _give(result: Reproduction, output: Path | None, as_json: bool) -> None:
    if output is not None:
        result.save(output)
    if as_json:
        _print_json(result.to_json())
    else:
        _print(result)
        _say_written(output)
    if not result.reproduced:
        raise typer.Exit(FAILED_VERDICT)


def _refuse_on_xen(experiment: str | None, quick: bool, seeds: int | None, calibrate: bool) -> None:
    if seeds is not None:
        raise InputError("the task sets on Xen are fixed", "leave --seeds out")
    if calibrate and (quick or experiment not in (None, "calibration")):
        raise InputError(
            "costs are not measured in this experiment, or not long enough",
            "write `laxity reproduce rt-xen calibration --on xen --calibrate`",
        )


def _calibrate(calibration: Calibration | None) -> None:
    from laxity.lab.image import CHECKOUT  # noqa: PLC0415 - only --on xen needs it

    if calibration is None:
        raise LabError("no costs were measured, and none are written")
    for path in calibration.save(CHECKOUT):
        _say(f"wrote {path}")


@app.command(
    epilog=_examples(
        "fidelity examples/rt-xen.toml --duration '10 s'",
        "fidelity examples/overload.toml --policy periodic -o out",
    )
)
def fidelity(
    host: HostArgument,
    policy: PolicyOption = None,
    settings: SetOption = None,
    seed: SeedOption = None,
    duration: DurationOption = None,
    at: AtOption = "emulator",
    mode: ModeOption = "repeatable",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far is the simulator from real Xen?

    Runs the host on both, with the same tasks: how many deadlines each misses, who runs when, when
    jobs are complete. With -o the two runs are in sim and xen, for report, trace and diff.
    """
    place = _xen("xen", at, mode, None)
    file = Host.load(host)
    with _place(output) as directory, _temporary() as keep:
        result = file.fidelity(
            place,
            seed=seed,
            policy=policy,
            duration=duration,
            set=settings or (),
            keep=keep / "boot",
            say=_say,
        )
        if output is not None:
            result.write(directory)
    if as_json:
        _print_json(result.to_json())
    else:
        _print(tables.fidelity(result))


@app.command(
    context_settings={"ignore_unknown_options": True},
    epilog=_examples(
        "sched get",
        "sched --at ssh://root@server set web budget=2ms period=10ms",
        "sched set --pool 0 policy=polling",
    ),
)
def sched(
    words: Annotated[
        list[str], typer.Argument(metavar="get|set|pool ...", help="As laxity-sched takes them.")
    ],
    at: Annotated[
        str, typer.Option("--at", metavar="PLACE", help="local (this is dom0) or ssh://root@HOST.")
    ] = "local",
) -> None:
    """Parameters of a live Xen host, by Laxity's scheduler in it.

    Runs laxity-sched there, which explains itself: laxity sched -- --help.
    """
    from laxity.lab import where  # noqa: PLC0415 - only --on xen and this need it

    code, text, complaint = where.real_host(at).sched(words)
    print(text, end="")
    print(complaint, end="", file=sys.stderr)
    if code:
        raise typer.Exit(code)


@app.command(
    epilog=_examples(
        "voice calls.pcap",
        "voice calls.pcapng --playout '40 ms' --one-in 4 --json",
        "voice calls.pcap --wav heard",
    )
)
def voice(
    capture: Annotated[
        Path, typer.Argument(metavar="CAPTURE", help="pcap or pcapng, taken near the receiver.")
    ],
    playout: Annotated[
        str, typer.Option(metavar="TIME", help="How long the playout buffer holds a packet.")
    ] = "60 ms",
    one_in: Annotated[
        int, typer.Option(metavar="N", min=1, help="Score every Nth call; 4 as in the papers.")
    ] = 1,
    wav: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write what is heard of each call to a new directory."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What did the calls in a capture sound like?

    Plays reference speech through the arrival times of each G.711 stream, and scores what comes out
    with PESQ; the E-model beside it.
    """
    from laxity.voice import command  # noqa: PLC0415 - only this command needs it

    playout_ns = _time(playout, "--playout")
    if wav is not None:
        command.refuse_unless_new(wav)
    with _progress("scoring") as progress:
        result = command.run(capture, playout_ns, one_in, progress)
    if wav is not None:
        result.write_wav(wav)
    if as_json:
        _print_json(result.to_json())
    else:
        _print(result)
        if wav is not None:
            print(f"Written to {wav}")


def _time(text: str, option: str) -> int:
    """Nanoseconds of a time as people write it."""
    try:
        return _core.parse_duration(text)
    except ValueError as error:
        why = str(error).split("\n")[0]
        raise InputError(f"{option}: the time {why}", f"write {option} '60 ms'") from None


@app.command(epilog=_examples("schema host > host.schema.json", "schema result"))
def schema(
    of: Annotated[
        Literal["host", "result"], typer.Argument(metavar="host|result", help="Of which files.")
    ] = "host",
) -> None:
    """Print a JSON Schema.

    That of host files is for editors, that of results says what `run --json` prints.
    """
    print(_core.host_schema() if of == "host" else _core.result_schema())


def _names(text: str | None) -> list[str] | None:
    """Names with commas between them."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(
            f"a name is missing in --policy {text!r}", "write --policy credit,deferrable"
        )
    return names


def _print(renderable: RenderableType) -> None:
    console = Console(highlight=False)
    # A narrower terminal wraps lines; Rich would cut numbers.
    console.width = max(console.width, tables.WIDTH)
    console.print(renderable)


def _window(text: str) -> tuple[int, int]:
    """Two times, ns, of "FROM..TO"."""
    example = 'write two times, such as --window "1.2 s..1.3 s"'
    ends = text.split("..")
    if len(ends) != 2:  # noqa: PLR2004 - the two ends of a window
        raise InputError(f"the window {text!r} is not FROM..TO", example)
    try:
        from_ns, to_ns = (_core.parse_duration(end) for end in ends)
    except ValueError as error:
        why = str(error).split("\n")[0]
        raise InputError(f"the window {text!r}: a time {why}", example) from None
    if from_ns >= to_ns:
        raise InputError(f"the window {text!r} is empty", example)
    return from_ns, to_ns


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps(content, indent=2))


def _say_written(output: Path | None) -> None:
    if output is not None:
        _print(f"Written to {output}; laxity report {output} makes a page of it")


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, once it has taken a while."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=None)
    start = time.monotonic()

    def tell(done: int, total: int) -> None:
        if time.monotonic() - start > PROGRESS_AFTER_S:
            bar.update(task, completed=done, total=total)
            bar.start()

    try:
        yield tell
    finally:
        bar.stop()


@contextmanager
def _status(what: str) -> Iterator[Callable[[str], None] | None]:
    """What is being done, on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status(what) as status:
        yield status.update


def main() -> NoReturn:
    """Runs the command line and ends the process; no traceback unless LAXITY_TRACEBACK is set."""
    # A reader that has gone away ends the process, as it does other tools in a pipe.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(guarded())


def guarded() -> int:
    """Runs the command line of `sys.argv`; returns the exit code."""
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except LabError as error:
        _explain(error)
        return FAILED_MACHINE
    except (InputError, OSError) as error:
        _explain(error)
        return BAD_INPUT
    except BaseException as error:  # noqa: BLE001 - a panic of the extension module is no Exception
        _admit(error)
        return OUR_MISTAKE
    return 0


def _explain(error: InputError | OSError) -> None:
    console = Console(stderr=True)
    if isinstance(error, HostError) and console.is_terminal and not console.no_color:
        print(error.coloured, file=sys.stderr)
    elif isinstance(error, InputError):
        print(error, file=sys.stderr)
    else:
        print(f"error: {error}", file=sys.stderr)


def _admit(error: BaseException) -> None:
    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        traceback.print_exception(error)
        return
    print(
        f"error: a mistake in laxity itself: {type(error).__name__}: {error}\n"
        f"  help: please report it, with what {TRACEBACK_VARIABLE}=1 shows",
        file=sys.stderr,
    )
