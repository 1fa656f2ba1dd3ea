"""`laxity apply` on the emulated KVM host: its kernel, its control groups, Debian's libvirt.

One guest is QEMU with KVM, started by libvirt. The other is a process with threads that are named
as QEMU names its own, in a control group that is named as those of Proxmox.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import libvirt_host
import pytest
from laxity import Host
from laxity.apply import agent
from laxity.apply.agent.settings import Wanted
from laxity.apply.wanted import Helpers, ask
from laxity.lab import cpio, kvm_image, kvm_policies, machine
from laxity.lab.kvm_machine import KvmMachine
from laxity.policies import TABLE
from test_apply import GUEST

pytestmark = [
    pytest.mark.xen,
    pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="the kernel is Debian's"),
]

HOST = """\
duration = "1 s"
host = { cpus = 1, policy = "fifo" }
domain = [
    { name = "control", vcpus = 2, rt-priority = 30, weight = 300, budget = "1ms", period = "9ms" },
    { name = "batch", rt-priority = 2, budget = "2 ms", period = "10 ms" },
]
"""
LIBVIRT, PROXMOX = "control", "batch"
"""The guest of each."""
GROUPS = {
    LIBVIRT: "machine/qemu-1-control.libvirt-qemu",
    PROXMOX: "qemu.slice/100.scope",
}
VCPUS = {LIBVIRT: 2, PROXMOX: 1}
DOMAIN = f"""\
<domain type='kvm'>
  <name>{LIBVIRT}</name>
  <memory unit='MiB'>32</memory>
  <vcpu>{VCPUS[LIBVIRT]}</vcpu>
  <iothreads>1</iothreads>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <cpu mode='host-passthrough'/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
"""

DRIVER = """
import json, os, subprocess, sys, time
from pathlib import Path

sys.path.append("/")
from agent.scheduler import Scheduler

ROOT, RESULTS = Path("/sys/fs/cgroup"), Path(os.environ["RESULTS"])
PLAN = json.loads(Path("/plan/plan.json").read_text())
FILES = ("cpu.weight", "cpu.max", "cpu.max.burst")

def refusals(scheduler, *orders):
    for order in orders:
        try:
            yield scheduler._ask(order)
        except OSError as error:
            yield str(error)

def start_libvirt():
    log = (RESULTS / "libvirtd.log").open("ab")
    daemon = subprocess.Popen(["libvirtd", "--config", "/dev/null"], stdout=log, stderr=log)
    while subprocess.run(["virsh", "version"], capture_output=True).returncode != 0:
        assert daemon.poll() is None, "libvirtd has ended"
        time.sleep(0.1)
    return daemon

def virsh(*words):
    subprocess.run(["virsh", "--quiet", *words], check=True)

def of_libvirt(name):
    (group,) = ROOT.glob(f"machine/qemu-*-{name}.libvirt-qemu")
    return int(Path(f"/run/libvirt/qemu/{name}.pid").read_text()), group

def start_as_proxmox(name):
    names = [f"CPU {number}/KVM" for number in range(PLAN["vcpus"][name])]
    words = ["qemu-system-x86_64", "-c", PLAN["guest"], "-name", f"guest={name},debug-threads=on"]
    started = subprocess.Popen([*words, *names, "IO iothread1"], executable=sys.executable,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONHOME": "/usr"})
    assert started.stdout.readline() == b"ready\\n"
    group = ROOT
    for part in PLAN["groups"][name].split("/"):
        (group / "cgroup.subtree_control").write_text("+cpu")
        group = group / part
        group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text(str(started.pid))
    return started, group

def snapshot():
    found = {}
    guests = {"control": of_libvirt("control"), "batch": (batch.pid, batch_group)}
    for name, (pid, group) in guests.items():
        for task in Path(f"/proc/{pid}/task").iterdir():
            comm = (task / "comm").read_text().strip()
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            # priority, nice, real-time priority and policy, as proc_pid_stat(5) counts them
            found[f"{name} {comm}"] = [fields[15], fields[16], fields[37], fields[38]]
        for each in (group, *(path for path in group.rglob("*") if path.is_dir())):
            for file in FILES:
                if (each / file).exists():
                    where = each.relative_to(group) / file
                    found[f"{name} {where}"] = (each / file).read_text().strip()
    for place in ("/var/lib/laxity", "/etc/libvirt/hooks"):
        found[place] = sorted(map(str, Path(place).rglob("*")))
    found["/run"] = sorted(map(str, Path("/run").glob("laxity-scx*")))
    found["sched_ext"] = Path("/sys/kernel/sched_ext/state").read_text()
    return found

def agent(**request):
    done = subprocess.run([sys.executable, "-m", "agent"], input=json.dumps(request).encode(),
        capture_output=True, cwd="/")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)

libvirt = start_libvirt()
virsh("define", "/plan/domain.xml")
virsh("start", "control")
batch, batch_group = start_as_proxmox("batch")
told = {"before": snapshot(), "seen": agent(do="observe", nics=[])["seen"], "applied": {}}
for policy, wanted in PLAN["wanted"].items():
    answer = agent(do="apply", wanted=wanted, keep=False, persist=True)
    told["applied"][policy] = {"answer": answer, "snapshot": snapshot()}
    if wanted["scheduler"]:
        told["changed"] = agent(do="apply", wanted=PLAN["changed"], keep=True, persist=False)
        scheduler = Scheduler(Path("/scheduler"), Path("/run"))
        told["shown"] = scheduler._ask("show")
        scheduler._ask("set control/1 period=5000000")
        told["between"] = scheduler._ask("show")
        told["refused"] = list(refusals(scheduler, "set control budget=7000000", "phase 1 0"))
        told["unchanged"] = scheduler._ask("show")
def restart():
    virsh("destroy", "control")
    virsh("start", "control")
    return snapshot()

told["started"] = restart()
libvirt.terminate()
libvirt.wait()
start_libvirt()
told["hooked"] = restart()
told["reverted"] = agent(do="revert")
told["after"] = snapshot()
(RESULTS / "told.json").write_text(json.dumps(told))
""".replace("\\\\n", "\\n")

SCRIPT = f"""\
set -eu
{libvirt_host.SCRIPT}
python3 -B /plan/drive.py
"""


def wanted(policy: str) -> Wanted:
    """What `ask` makes of a host that looks as the emulated one should."""
    guests = [
        {
            "name": name,
            "pid": 1,
            "threads": [{"tid": 1, "vcpu": number, "allowed": [0]} for number in range(count)],
            "group": {"path": GROUPS[name], "is_own": True, "files": {"cpu.weight": "100"}},
        }
        for name, count in VCPUS.items()
    ]
    seen: Any = {
        "cpus": [0],
        "rt_runtime_us": 950_000,
        "rt_period_us": 1_000_000,
        "deadline_period_us": [100, 4_194_304],
        "deadlines": [],
        "guests": guests,
        "unnamed": [],
        "strangers": [],
        "interrupts": {},
        "scheduler": {"possible": True, "loaded": None, "given": None},
    }
    overrides = [f"host.policy={policy}"]
    if policy == "eevdf":
        overrides += ["domain.batch.quota=20 ms", "domain.batch.quota-period=50 ms"]
    return ask(Host.parse(HOST).resolved(overrides), seen, Helpers()).wanted


def test_apply_on_a_real_kernel(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    policies = ("deadline", "eevdf", "sedf", "fifo")
    given: Any = wanted("sedf")["scheduler"]
    parameters = given["domains"]["control"]["parameters"].replace("=1000000", "=2000000")
    domains = {**given["domains"], "control": {"parameters": parameters, "cpus": [0, 0]}}
    scheduler = {**given, "domains": domains}
    content = {
        "groups": GROUPS,
        "vcpus": VCPUS,
        "guest": GUEST,
        "wanted": {policy: wanted(policy) for policy in policies},
        "changed": Wanted(domains={}, interrupts={}, scheduler=scheduler),
    }
    (plan / "plan.json").write_text(json.dumps(content))
    (plan / "domain.xml").write_text(DOMAIN)
    (plan / "drive.py").write_text(DRIVER)
    (plan / "plan.sh").write_text(SCRIPT)
    agents = Path(agent.__file__).parent
    files = [cpio.file(f"agent/{path.name}", path) for path in agents.glob("*.py")]
    loading = kvm_policies.build([TABLE["sedf"]], print).loading("sedf")
    files += [
        cpio.Entry(f"scheduler/{name}", 0o100755, content) for name, content in loading.items()
    ]
    beside = cpio.archive([*libvirt_host.entries(), cpio.directory("scheduler"), *files])
    image = kvm_image.build(print)
    kvm_image.programs(print)
    made = KvmMachine(image, plan, memory_mib=1536, beside=beside)
    told = json.loads((made.run(tmp_path / "out", print) / "told.json").read_text())

    seen = {guest["name"]: guest for guest in told["seen"]["guests"]}
    assert seen.keys() == GROUPS.keys()
    for name, path in GROUPS.items():
        group = seen[name]["group"]
        assert (group["path"], group["is_own"]) == (path, True)
        assert group["files"].keys() == {"cpu.weight", "cpu.max", "cpu.max.burst"}
        vcpus = [thread["vcpu"] for thread in seen[name]["threads"] if thread["vcpu"] is not None]
        assert sorted(vcpus) == list(range(VCPUS[name]))

    def of(policy: str) -> dict[str, Any]:
        applied = told["applied"][policy]
        assert "error" not in applied["answer"], applied["answer"]
        snapshot: dict[str, Any] = applied["snapshot"]
        return snapshot

    # The last two are the real-time priority and the number of the policy.
    assert of("deadline")["control CPU 1/KVM"][2:] == ["0", "6"]
    assert of("eevdf")["control CPU 1/KVM"][2:] == ["0", "0"]
    assert of("eevdf")["control cpu.weight"] == "300"
    assert of("eevdf")["batch cpu.max"] == "20000 50000"
    _refuse_other_than_ours(told, of("sedf"))
    assert of("fifo")["sched_ext"] == "disabled\n"
    assert of("fifo")["/run"] == []
    assert of("fifo")["control CPU 1/KVM"][2:] == ["30", "1"]
    assert of("fifo")["control cpu.weight"] == "100"
    assert of("fifo")["batch CPU 0/KVM"][2:] == ["2", "1"]
    assert of("fifo")["batch IO iothread1"][2:] == ["0", "0"]
    # libvirt looks for hooks when it starts, and then calls this one for each guest that starts.
    assert told["started"]["control CPU 0/KVM"][2:] == ["0", "0"]
    assert told["hooked"]["control CPU 0/KVM"][2:] == ["30", "1"]
    assert told["reverted"]["failed"] == []
    assert told["after"] == told["before"]


def _refuse_other_than_ours(told: dict[str, Any], snapshot: dict[str, Any]) -> None:
    """VCPUs of a policy of Laxity are SCHED_EXT, and parameters change while it schedules."""
    assert snapshot["control CPU 1/KVM"][2:] == ["0", "7"]
    assert snapshot["batch IO iothread1"][2:] == ["0", "0"]
    assert snapshot["sched_ext"] == "enabled\n"
    assert "error" not in told["changed"], told["changed"]
    shown = [line.split() for line in told["shown"]]
    assert {(line[1], line[2], line[5]) for line in shown} == {
        ("control", "0", "budget=2000000"),
        ("control", "1", "budget=2000000"),
        ("batch", "0", "budget=2000000"),
    }
    # The domain and its first VCPU could have had more, and the second one cannot.
    assert told["between"] != told["shown"]
    assert told["refused"][0].startswith("the policy refuses control: ")
    assert told["refused"][1] == "the kHz of the TSC must be more than 0"
    assert told["unchanged"] == told["between"]
