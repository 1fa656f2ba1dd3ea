"""Agreements of domains: Debian's libvirt gives the guest's card an interface whenever it starts.

The guest has nothing to boot but its card, so that it asks for an address again and again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import libvirt_host
import pytest
from laxity import programs

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="there is no iproute2"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="the packages are Debian's"),
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="the kernel has no taps"),
]

DOMAIN = """\
<domain type='qemu'>
  <name>voice</name>
  <memory unit='MiB'>32</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type><boot dev='network'/></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>
  </devices>
</domain>
"""
AGREEMENTS = """\
absent = "wait"

[link]
interface = "up0"
rate = "100 Mbit/s"

[[agreement]]
name = "voice"
domain = "voice"
class = 1
maximum = "10 Mbit/s"
"""
SCENE = Path(__file__).parent / "libvirt_agreements.py"
ALONE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
FIRST = ("sh", "-c", '"$@" & wait $!', "sh")
"""QEMU's parents leave it, and whoever is first among the processes has to wait for it."""
TIMEOUT_S = 900
"""A machine that takes longer has died."""


def test_a_domain_has_its_agreement_whenever_it_starts(tmp_path: Path) -> None:
    program = programs.built("laxity-bandwidth")
    if program is None:
        pytest.skip("laxity-bandwidth is not built")
    strict = AGREEMENTS.replace('absent = "wait"\n', "")
    files = {
        "domain.xml": DOMAIN,
        "agreements.toml": AGREEMENTS,
        "strict.toml": strict,
        "unknown.toml": strict.replace('domain = "voice"', 'domain = "nobody"'),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    words = [*ALONE, *FIRST, sys.executable, SCENE, libvirt_host.root(), tmp_path, program]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    log = tmp_path / "log"
    assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
    told = json.loads((tmp_path / "told.json").read_text())

    code, said = told["strict"]
    assert code == 2
    assert 'card 1 of the domain "voice" has no interface now' in said
    code, said = told["unknown"]
    assert code == 2
    assert "virsh says: failed to get domain 'nobody'" in said
    assert not told["before"]["is_present"]
    for name in ("first", "second"):
        assert told[name]["interface"] in told[name]["cards"]
    assert told["first"]["interface"] != told["second"]["interface"]
    code, said = told["running"]
    assert code == 0
    assert 'limit voice at card 1 of the domain "voice"\n' in said
    assert told["ended"] == 0
