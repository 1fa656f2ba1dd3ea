"""Certificates of servers of SIP over TLS: what is taken, and what is refused in plain words."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from laxity.errors import InputError
from laxity.servers import identity

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.servers.identity import Identity

DOMAIN = "voice.example"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


def refusal(of: Identity, domain: str = DOMAIN) -> str:
    with pytest.raises(InputError) as refused:
        of.check(domain)
    return str(refused.value)


def test_a_certificate_and_its_key_are_taken(tmp_path: Path) -> None:
    made = identity.make(DOMAIN, tmp_path)
    made.check(DOMAIN)
    assert made.key.stat().st_mode & 0o777 == 0o600


def test_what_no_client_would_believe_is_refused(tmp_path: Path) -> None:
    made, other = identity.make(DOMAIN, tmp_path), identity.make("other.example", tmp_path)
    assert "is not the key of" in refusal(replace(made, key=other.key))
    said = refusal(other)
    assert f"{other.certificate} serves no client of {DOMAIN}: Hostname mismatch" in said
    assert f"DNS:{DOMAIN}" in said
    swapped = refusal(identity.Identity(certificate=made.key, key=made.key))
    assert "are no certificate with its key" in swapped

    command = ["openssl", "x509", "-req", "-days", "-1", "-signkey", str(made.key)]
    asked = ["openssl", "x509", "-x509toreq", "-in", str(made.certificate)]
    asked += ["-copy_extensions", "copyall", "-signkey", str(made.key)]
    request = subprocess.run(asked, check=True, capture_output=True).stdout
    expired = tmp_path / "expired.crt"
    command += ["-copy_extensions", "copyall", "-out", str(expired)]
    subprocess.run(command, input=request, check=True, capture_output=True)
    said = refusal(replace(made, certificate=expired))
    assert "certificate has expired" in said
    assert "valid now" in said


def test_a_key_is_a_secret_and_a_file(tmp_path: Path) -> None:
    made = identity.make(DOMAIN, tmp_path)
    made.key.chmod(0o640)
    said = refusal(made)
    assert "has mode 0640" in said
    assert f"chmod 600 {made.key}" in said
    made.key.chmod(0o600)
    encrypted = tmp_path / "encrypted"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(made.key), "-out", str(encrypted)]
    subprocess.run([*command, "-passout", "pass:blue"], check=True, capture_output=True)
    encrypted.chmod(0o600)
    assert "the key without a passphrase" in refusal(replace(made, key=encrypted))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "is a FIFO" in refusal(replace(made, key=fifo))
    assert "is a FIFO" in refusal(replace(made, certificate=fifo))
    assert "there is no file" in refusal(replace(made, key=tmp_path / "absent"))
