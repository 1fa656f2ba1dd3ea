"""The death of a media server's host, as the parties of its calls hear it."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from laxity.appliances import image
from laxity.lab.machine import QEMU

pytest.importorskip("pylibsrtp")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "pages"))
import media_failures as failures
from media_failures import DTLS, DTLS_LATER, RELAY, TRANSCODING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from media_failures import Kind, Loss, Scene

pytestmark = pytest.mark.slow

COME = 50
"""Packets that come to each party after the failure, before anybody judges."""
DETECTION_S = 10.0
"""A machine that is slow for a while is not to be taken for dead."""


def noticed(
    begin: Callable[..., AbstractContextManager[Scene]],
    files: Path,
    detection_s: float,
    kinds: Sequence[Kind],
    asked: Sequence[Kind] = (),
) -> dict[str, tuple[Loss, Loss]]:
    """What the parties notice, once packets come again; and callers of `asked` a new handshake."""
    with (
        begin(files, detection_s=detection_s) as scene,
        failures.talking(scene, kinds) as conversation,
    ):
        failed = scene.fail()
        # Else the survivor had taken over before the failure, of which nobody noticed anything.
        assert failed.waited_ns > detection_s / 2 * 1e9

        def all_came() -> bool:
            came = conversation.came_since(failed.silent_ns)
            callers = {call.kind: call.parties[0] for call in conversation.calls}
            return min(came) >= COME and all(callers[kind.name].hellos_ns for kind in asked)

        failures.await_(all_came, "no packets come any more")
        return failures.losses(scene, conversation, failed)


def needs(*programs: str) -> None:
    absent = [name for name in ("ip", "nsenter", *programs) if shutil.which(name) is None]
    if absent or os.geteuid() != 0:
        pytest.skip(f"needs root and these programs: {', '.join(absent)}")


def test_redis_has_what_rtpengine_relays_with_and_not_all_of_what_it_encrypts_with(
    tmp_path: Path,
) -> None:
    needs(*failures.PACKAGES)
    found = noticed(failures.shared_redis, tmp_path, 2.0, failures.KINDS, asked=(DTLS,))
    for loss in found[RELAY.name]:
        assert loss.comes_back
        assert not loss.has_new_source
    for loss in found[TRANSCODING.name]:
        assert loss.comes_back
        assert loss.has_new_source
    # Keys are in Redis; the association that they come from is not, …
    caller, callee = found[DTLS.name]
    for loss in (caller, callee):
        assert loss.comes_back
        assert loss.is_key_kept
    assert caller.handshakes > 0 == callee.handshakes
    # … nor how often sequence numbers have overflowed.
    for loss in found[DTLS_LATER.name]:
        assert not loss.comes_back
        assert loss.not_understood >= COME


@pytest.mark.parametrize(
    ("appliance", "arguments", "kinds"),
    [
        (image.MEDIA, "", (RELAY, DTLS, DTLS_LATER)),
        (image.MEDIA, "transcode=1", (TRANSCODING,)),
        (image.RTPENGINE, "", failures.KINDS),
    ],
)
def test_a_protected_media_server_goes_on_as_if_nothing_had_been(
    tmp_path: Path, appliance: str, arguments: str, kinds: Sequence[Kind]
) -> None:
    needs(QEMU, "dpkg-deb", "openssl")
    begin = partial(failures.protected_guest, appliance, arguments=arguments)
    found = noticed(begin, tmp_path, DETECTION_S, kinds)
    for losses in found.values():
        for loss in losses:
            assert loss.comes_back
            assert not loss.has_new_source
            assert loss.handshakes == 0
