"""Sites of two stages: balancers by themselves, and a whole site through the death of a host."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from ipaddress import IPv4Interface, IPv6Address
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
import sip_scenarios as sip
from conftest import SITE
from laxity import programs
from laxity.errors import InputError
from laxity.lab.machine import QEMU
from laxity.namespaces.network import CLIENT, NAMESPACES, Machine, switch
from laxity.namespaces.process import Place, Process, process
from laxity.servers import identity, registrar, signalling
from laxity.servers.addresses import literal
from laxity.servers.control import socket_in
from sip_clients import History, clients
from sip_phones import Call, phone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from conftest import Laxity

pytestmark = pytest.mark.slow

CLIENTS = "192.0.2.9"
BALANCERS = ("192.0.2.21", "192.0.2.22")
REGISTRARS = ("192.0.2.31", "192.0.2.32")
USERS = [f"user{number}" for number in range(24)]

needs_sip = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("kamailio", "sipp", "ip", "nsenter"))),
    reason="needs root, kamailio, sip-tester and iproute2",
)


@contextmanager
def two_stages(files: Path) -> Iterator[Place]:
    """Two balancers before two registrars, all of them real, and none a virtual machine."""
    addresses = [*BALANCERS, *REGISTRARS]
    machines = [Machine(a, [IPv4Interface(f"{a}/24")]) for a in addresses]
    with ExitStack() as stack:
        places = stack.enter_context(switch([IPv4Interface(f"{CLIENTS}/24")], machines))
        for address in REGISTRARS:
            place = Place(places[address], files=files)
            stack.enter_context(signalling.proxy(f"registrar-{address}", [address], place))
        for address in BALANCERS:
            place = Place(places[address], files=files)
            name = f"balancer-{address}"
            stack.enter_context(signalling.balancer(name, [address], REGISTRARS, place))
        yield Place(places[CLIENT], files=files)


@needs_sip
def test_a_user_is_always_sent_to_the_same_registrar(tmp_path: Path) -> None:
    with two_stages(tmp_path) as clients:
        counted = signalling.registrations(
            len(USERS), 50.0, clients, server=BALANCERS[0], client=CLIENTS
        )
        assert (counted["succeeded"], counted["failed"]) == (len(USERS), 0)

        def known(address: str) -> set[str]:
            return set(registrar.bindings(clients.namespace, address, USERS))

        # Each knows its own, together they know all, whichever balancer is asked.
        halves = [known(address) for address in REGISTRARS]
        assert all(halves)
        assert not halves[0] & halves[1]
        assert halves[0] | halves[1] == set(USERS)
        assert known(BALANCERS[1]) == set(USERS)

        # Calls find the callee there, and everything within the dialog the server that has it.
        traffic = signalling.Traffic(calls=12, rate_per_s=12.0, hold_ns=500_000_000)
        made = signalling.users(traffic, clients, "orders", server=BALANCERS[1], client=CLIENTS)
        with made as users:
            users.caller.popen.wait(TAKEN_OVER_S_MAX)
            counted = users.stop()
        assert (counted["established"], counted["failed"]) == (traffic.calls, 0)


@needs_sip
def test_users_of_tcp_come_to_the_same_registrar(tmp_path: Path) -> None:
    with two_stages(tmp_path) as clients:
        counted = signalling.registrations(
            len(USERS),
            50.0,
            clients,
            server=BALANCERS[0],
            client=CLIENTS,
            transport="tcp-each",
        )
        assert (counted["succeeded"], counted["failed"]) == (len(USERS), 0)
        halves = [set(registrar.bindings(clients.namespace, at, USERS)) for at in REGISTRARS]
        assert all(halves)
        assert not halves[0] & halves[1]
        assert set(registrar.bindings(clients.namespace, BALANCERS[1], USERS)) == set(USERS)


@needs_sip
def test_a_balancer_says_that_it_is_there_and_passes_on_nothing_else(tmp_path: Path) -> None:
    with two_stages(tmp_path) as clients:
        there = registrar.ask(clients.namespace, BALANCERS[0], "OPTIONS", BALANCERS[0])
        assert there.startswith(b"SIP/2.0 200 ")
        elsewhere = f"<sip:{CLIENTS}:5999;lr>"
        refused = registrar.ask(
            clients.namespace, BALANCERS[0], "OPTIONS", f"user@{CLIENTS}", route=elsewhere
        )
        assert refused.startswith(b"SIP/2.0 403 ")


SEED = int(os.environ.get("LAXITY_SEED", "0"))
CONTENDED = [f"guest{number}" for number in range(6)]
"""Users with whom several clients do something at once."""
CLIENTS_AT_ONCE = 4
OPERATIONS = 10
"""How many of each user are answered before and after a failure."""


LIVES_MAX = 5
"""How often a registrar is started anew until clients have seen that it forgets: a user who is
registered again before anybody looks hides it."""


def _clients(
    place: Place, servers: Sequence[str], address: str = CLIENTS
) -> AbstractContextManager[History]:
    return clients(place.namespace, address, servers, CONTENDED, number=CLIENTS_AT_ONCE, seed=SEED)


def _wait_for_answers(history: History, users: Sequence[str]) -> None:
    """Waits until operations on each of the users have been answered that begin from now on."""
    begun_s = time.monotonic()
    while any(history.answered(begun_s).get(user, 0) < OPERATIONS for user in users):
        assert time.monotonic() < begun_s + TAKEN_OVER_S_MAX, history.answered(begun_s)
        time.sleep(0.05)


@needs_sip
def test_what_clients_see_of_registrars_has_an_order(tmp_path: Path) -> None:
    with two_stages(tmp_path) as place:
        with _clients(place, BALANCERS) as history:
            _wait_for_answers(history, CONTENDED)
        assert history.impossible() == {}, (SEED, history.operations)
        kinds = {each.kind for of in history.operations.values() for each in of}
        assert kinds == {"register", "unregister", "lookup", "invite", "bye"}


@needs_sip
def test_clients_see_that_a_registrar_has_forgotten(tmp_path: Path) -> None:
    """Without protection the next registrar at an address knows nobody."""
    address = REGISTRARS[0]
    machines = [Machine(address, [IPv4Interface(f"{address}/24")])]
    with switch([IPv4Interface(f"{CLIENTS}/24")], machines) as places:
        server, outside = (Place(places[who], files=tmp_path) for who in (address, CLIENT))
        with _clients(outside, [address]) as history:
            for life in range(LIVES_MAX):
                with signalling.proxy(f"registrar-{life}", [address], server):
                    _wait_for_answers(history, CONTENDED)
                if history.impossible():
                    break
        assert history.impossible(), (SEED, history.operations)


HOSTS = ("north", "south", "reserve")
TAKEN_OVER_S_MAX = 600.0
"""For whatever ends by itself: it has then been forgotten."""


def test_a_site_file_that_is_wrong_is_refused_with_its_place(
    laxity: Laxity, tmp_path: Path
) -> None:
    _needs_the_daemon()
    path = tmp_path / "site.toml"
    text = SITE.read_text().replace('media = "media1"', 'media = "medea1"', 1)
    path.write_text(text)
    line = 1 + text[: text.index("medea1")].count("\n")
    refused = laxity("site", path, code=2)
    assert "there is no virtual machine `medea1`" in refused.stderr
    assert f"{path}:{line}:9" in refused.stderr
    path.write_text(SITE.read_text().replace("192.0.2.41/24", "198.51.100.41/24"))
    refused = laxity("site", path, code=2)
    assert "media1 has 198.51.100.41, which is not in 192.0.2.0/24" in refused.stderr
    if shutil.which("openssl") is not None:
        identity.make("other.example", tmp_path)
        tls = 'tls = { certificate = "other.example.crt", key = "other.example.key" }'
        path.write_text(f"{tls}\n{SITE.read_text()}")
        refused = laxity("site", path, code=2)
        assert "other.example.crt serves no client of voice.example: Hostname" in refused.stderr
    (tmp_path / "guest.cfg").touch()
    path.write_text(f"{SITE.read_text()}{DOMAIN}")
    refused = laxity("site", path, code=2)
    assert "recorder is a domain of Xen" in refused.stderr


DOMAIN = """
[[vm]]
engine = "xen"
name = "recorder"
hosts = ["north", "south"]
configuration = "guest.cfg"
"""


def _needs_the_daemon() -> None:
    if programs.built("laxity-protect") is None:
        pytest.skip("laxity-protect is not built")


class Started:
    """What `laxity site` has printed for a user to try."""

    def __init__(self, output: IO[str]) -> None:
        """Reads until all is there."""
        self.text = ""
        while self.text.count("laxity protect status") < len(HOSTS):
            line = output.readline()
            assert line, f"it has ended: {self.text}"
            self.text += line

    def line(self, pattern: str) -> str:
        found = re.search(rf"^  (.*{pattern}.*)$", self.text, re.MULTILINE)
        assert found is not None, self.text
        return found[1]

    @property
    def clients(self) -> Path:
        return NAMESPACES / self.line("dig").split()[3]

    def run(self, line: str) -> str:
        done = subprocess.run(
            shlex.split(line, comments=True), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def status(self, host: str) -> dict[str, dict[str, Any]]:
        words = self.line(f"laxity protect status .*{host}.sock").split()[2:]
        line = shlex.join([str(programs.find("laxity-protect")), *words, "--json"])
        return {vm["name"]: vm for vm in json.loads(self.run(line))["vms"]}

    def balancers(self) -> list[str]:
        """The addresses of those that a client is to ask, in order (RFC 2782)."""
        records = [record.split() for record in self.run(self.line("dig")).splitlines()]
        assert {port for _, _, port, _ in records} == {"5060"}
        names = [name for *_, name in sorted(records, key=lambda record: int(record[0]))]
        server = self.line("dig").split()[6]
        enter = f"ip netns exec {self.clients.name}"
        return [self.run(f"{enter} dig +short {server} A {name}").strip() for name in names]

    def answering(self) -> str:
        """The first balancer that answers, as a client comes to it."""
        for address in self.balancers():
            try:
                registrar.ask(self.clients, address, "OPTIONS", address, tries=10)
            except InputError:
                continue
            return address
        raise AssertionError("no balancer answers")

    def known(self, address: str, users: list[str]) -> set[str]:
        return set(registrar.bindings(self.clients, address, users))


BOTH = r'address = ["192.0.2.\1\2", "2001:db8::\1{}"]'


def test_a_site_survives_a_host_and_a_balancer(tmp_path: Path) -> None:
    """`examples/site.toml`, by the lines that the command prints for its users."""
    ours = identity.make("voice.example", _needs_a_site(tmp_path, "openssl", "sipp", "ss"))
    tls = f'tls = {{ certificate = "{ours.certificate.name}", key = "{ours.key.name}" }}'
    with _site(tmp_path, f"{tls}\n{_of_both_families()}") as site:
        _survives(site, tmp_path, ours.certificate)


def test_calls_through_rtpengine_survive_its_host(tmp_path: Path) -> None:
    _needs_a_site(tmp_path)
    text = _of_both_families()
    before, media = text.split('appliance = "media"')
    media = media.replace("128 MiB", "512 MiB")
    # One signalling server is enough.
    before = "".join(
        re.split(r'\[\[vm\]\][^[]*name = "signalling2".*?(?=\[\[vm)', before, flags=re.DOTALL)
    )
    with _site(tmp_path, f'{before}appliance = "rtpengine"{media}') as site, ExitStack() as stack:
        v4 = site.answering()
        phones = []
        for user, balancer in zip(("anna", "bela"), (v4, _same_of_ipv6(v4)), strict=True):
            made = phone(site.clients, balancer, user, "voice.example")
            phones.append(stack.enter_context(made))
            assert phones[-1].register().startswith("SIP/2.0 200 ")
        calls = [Call(*phones), Call(*reversed(phones))]
        assert "c=IN IP6 2001:db8::41" in calls[0].invite
        assert "c=IN IP4 192.0.2.41" in calls[1].invite
        for call in calls:
            call.speak()
        _wait_for_checkpoints(site, "media1")
        _loses(site, "south", "media1")
        for call in [*calls, Call(*phones)]:
            call.speak()
            call.end()


def _needs_a_site(files: Path, *more: str) -> Path:
    """Skips the test where a site cannot be; returns where its files may be."""
    _needs_the_daemon()
    needed = ("kamailio", "dnsmasq", "dig", QEMU, "dpkg-deb", "ip", "nsenter", *more)
    absent = [name for name in needed if shutil.which(name) is None]
    if absent or os.geteuid() != 0:
        pytest.skip(f"needs root and these programs: {', '.join(absent)}")
    return files


def _of_both_families() -> str:
    """The example, whose balancers and appliances have addresses of both families, which end alike.

    On a machine that others use, who is slow is not to be taken for dead.
    """
    text = SITE.read_text().replace("[[vm]]", '[[vm]]\nheartbeat = "3 s"\ndetection = "10 s"')
    text = re.sub(r'address = "192.0.2.([234]\d)(/24)"', BOTH.format("/64"), text)
    return re.sub(r'address = "192.0.2.([234]\d)()"', BOTH.format(""), text)


@contextmanager
def _site(files: Path, text: str) -> Iterator[Started]:
    """The command, which leaves nothing behind."""
    path = files / "site.toml"
    path.write_text(text)
    command = [sys.executable, "-c", "from laxity.cli import main; main()", "site", str(path)]
    with (files / "errors").open("w+") as errors:
        popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        with popen:
            try:
                assert popen.stdout is not None
                yield Started(popen.stdout)
                assert popen.poll() is None
            finally:
                popen.send_signal(signal.SIGINT)
                popen.stdout.read()
                popen.wait()
                errors.seek(0)
                print(errors.read())
        assert popen.returncode == 0
    mine = f"laxity-{popen.pid}-"
    assert not list(NAMESPACES.glob(f"{mine}*"))
    assert not list(Path(tempfile.gettempdir()).glob(f"{mine}*"))
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [each for each in commands if mine.encode() in each]


def _survives(site: Started, files: Path, trusted: Path) -> None:
    register = site.line("sipp")
    assert set(site.balancers()) == {"192.0.2.21", "192.0.2.22"}
    site.run(register)
    users = re.findall(r"^(user\d+);", _users(register).read_text(), re.MULTILINE)
    on_north = site.known("192.0.2.31", users)
    assert 0 < len(on_north) < len(users)
    before = site.status("south")
    assert {name: vm["state"] for name, vm in before.items()} == {
        "signalling2": "protected",
        "media1": "protected",
    }

    words = register.split()
    client = words[words.index("-i") + 1]
    place = Place(site.clients, files=files)
    with _calls_over_tls(site, trusted), _a_call(site, files, client, min(on_north)) as ends_well:
        with _clients(place, site.balancers(), client) as history:
            _wait_for_answers(history, CONTENDED)
            _loses_north(site, users, on_north)
            _wait_for_answers(history, CONTENDED)
        ends_well()
    assert history.impossible() == {}, (SEED, history.operations)
    more = _users(register).with_name("more.csv")
    more.write_text(_users(register).read_text().replace("user", "guest"))
    site.run(register.replace(str(_users(register)), str(more)))
    assert 0 < len(site.known("192.0.2.31", CONTENDED)) < len(CONTENDED)
    # Calls find their callees on the survivor, and the media server stands between the parties.
    traffic = signalling.Traffic(calls=6, rate_per_s=3.0, hold_ns=500_000_000)
    parties = {"server": site.answering(), "client": client}
    with signalling.users(traffic, place, "orders", **parties) as talking:
        talking.caller.popen.wait(TAKEN_OVER_S_MAX)
        counted = talking.stop()
    assert (counted["established"], counted["failed"]) == (traffic.calls, 0)
    sent_to = re.findall(r"^send \S+ \S+ ([\d.]+):", (files / "orders").read_text(), re.MULTILINE)
    assert len(sent_to) >= traffic.calls
    assert set(sent_to) == {"192.0.2.41"}
    # The others have not been taken over, and still have their standby.
    after = site.status("south")
    for name, vm in before.items():
        assert (after[name]["state"], after[name]["term"]) == (vm["state"], vm["term"])
        assert after[name]["checkpoint"] > vm["checkpoint"]

    with _an_encrypted_call(site, trusted) as call:
        call.speak()
        _wait_for_checkpoints(site, "media1")
        _loses(site, "south", "media1", "signalling2")
        call.speak()
        call.end()
    assert site.known(site.answering(), users) == set(users)

    site.run(site.line("balancer edge1"))
    assert site.answering() == "192.0.2.22"
    assert site.known("192.0.2.22", users) == set(users)


def _wait_for_checkpoints(site: Started, media: str) -> None:
    """A media server's answers do not wait for the checkpoint that has the call."""
    begun = site.status("south")[media]["checkpoint"]
    until_s = time.monotonic() + TAKEN_OVER_S_MAX
    while site.status("south")[media]["checkpoint"] < begun + 2:
        assert time.monotonic() < until_s
        time.sleep(0.1)


def _loses(site: Started, host: str, *guests: str) -> None:
    """Kills a host, and waits until its guests run elsewhere."""
    site.run(site.line(f"host {host}"))
    until_s = time.monotonic() + TAKEN_OVER_S_MAX
    for guest in guests:
        while site.status("reserve")[guest]["state"] not in {"alone", "at-risk", "waiting"}:
            assert time.monotonic() < until_s, site.status("reserve")
            time.sleep(0.1)


def _loses_north(site: Started, users: list[str], on_north: set[str]) -> None:
    _loses(site, "north", "signalling1")
    assert site.known(site.answering(), users) == set(users)
    assert site.known("192.0.2.31", users) == on_north


@contextmanager
def _calls_over_tls(site: Started, trusted: Path) -> Iterator[None]:
    """Phones over IPv4 and IPv6, whose connections and calls by north's server outlive the host."""
    found = site.run(site.line("dig").replace("_sip._udp.", "_sips._tcp.")).splitlines()
    assert sorted(record.split()[2:] for record in found) == [
        ["5061", f"{name}.voice.example."] for name in ("edge1", "edge2")
    ]
    address = site.balancers()[0]
    edge = address.rpartition(".")[2]
    addresses, far = (address, f"2001:db8::{edge}"), ("192.0.2.31", "2001:db8::31")

    def connections() -> set[str]:
        """The balancer's own ends of its connections to north's server."""
        name = {"21": "edge1", "22": "edge2"}[edge]
        enter = f"ip netns exec {site.clients.name.replace(CLIENT, f'balancer-{name}')}"
        asked = [f"{enter} ss -tnH state established dst {literal(each)}:5061" for each in far]
        return {line.split()[2] for each in asked for line in site.run(each).splitlines()}

    with ExitStack() as stack:
        phones = {}
        for number in range(12):
            at = addresses[number % 2]
            made = phone(site.clients, at, f"secure{number}", "voice.example", trusted)
            phones[f"secure{number}"] = stack.enter_context(made)
            assert phones[f"secure{number}"].register().startswith("SIP/2.0 200 ")
        served = sorted(site.known(far[0], list(phones)))
        one, other = (
            phones[next(user for user in served if int(user[6:]) % 2 == version)]
            for version in range(2)
        )
        calls = [Call(one, other), Call(other, one)]
        # The media server stands between them at both of its addresses.
        assert "c=IN IP6 2001:db8::41" in calls[0].invite
        assert "c=IN IP4 192.0.2.41" in calls[1].invite
        calls[0].speak()
        before = connections()
        assert len(before) == len(far)
        kind = (socket.SOCK_RAW, socket.AF_INET6, socket.IPPROTO_ICMPV6)
        hearing = stack.enter_context(closing(socket_in(site.clients, *kind)))
        yield
        assert far[1] in announced(hearing)
        for call in [*calls, Call(one, other)]:
            call.speak()
            call.end()
        for each in phones.values():
            assert each.register().startswith("SIP/2.0 200 ")
        assert connections() == before


def _same_of_ipv6(address: str) -> str:
    """A balancer's other address."""
    return f"2001:db8::{address.rpartition('.')[2]}"


@contextmanager
def _an_encrypted_call(site: Started, trusted: Path) -> Iterator[Call]:
    """A call of two phones that have told each other keys, from IPv4 to IPv6."""
    v4 = site.answering()
    with ExitStack() as stack:
        phones = []
        for user, balancer in zip(("whisper", "murmur"), (v4, _same_of_ipv6(v4)), strict=True):
            made = phone(site.clients, balancer, user, "voice.example", trusted)
            phones.append(stack.enter_context(made))
            key = f"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{user}\r\n"
            secured = phones[-1].description.replace("RTP/AVP", "RTP/SAVP")
            phones[-1].description = f"{secured}{key}"
            assert phones[-1].register().startswith("SIP/2.0 200 ")
        call = Call(*phones)
        assert "inline:whisper" in call.invite
        assert "inline:murmur" in call.accepted
        yield call


def announced(hearing: socket.socket) -> set[str]:
    """The addresses of unsolicited neighbour advertisements (RFC 4861, 7.2.6)."""
    advertisement, override = 136, 0x20
    hearing.setblocking(False)
    found = set()
    with suppress(BlockingIOError):
        while message := hearing.recv(1500):
            if (message[0], message[4]) == (advertisement, override):
                found.add(str(IPv6Address(message[8:24])))
    return found


CALLER_PORT, GO_ON = 5086, "held1"
HELD = (
    sip.request("INVITE", 1, body=sip.description()),
    sip.await_("100", optional=True),
    sip.await_("180", optional=True),
    sip.await_("200", begins=True, action=sip.MEDIA),
    sip.acknowledge(1),
    # Not from the other party: it says that the host is gone.
    sip.hear("INFO"),
    sip.within("INVITE", 2, body=sip.description("sendonly", version=2)),
    sip.await_("100", optional=True),
    sip.await_("200", action=sip.MEDIA),
    sip.acknowledge(2),
    sip.within("UPDATE", 3, "Session-Expires: 1800;refresher=uac", "Supported: timer"),
    sip.await_("200"),
    sip.ended(4),
)
HOLDING = (
    sip.answered(),
    '<nop><action><log message="established"/></action></nop>\n',
    sip.hear("INVITE", action=sip.MEDIA + sip.on_hold()),
    sip.reply("200 OK", body=sip.description("recvonly", version=2), reliable=True),
    sip.hear("ACK"),
    sip.hear("UPDATE"),
    sip.reply("200 OK", "Session-Expires: 1800;refresher=uac"),
    sip.hung_up(),
)


@contextmanager
def _a_call(site: Started, files: Path, client: str, user: str) -> Iterator[Callable[[], None]]:
    """A call to a user that stands; what is given has it held, refreshed and ended."""
    place = Place(site.clients, files=files)
    server = site.answering()
    with ExitStack() as stack:

        def phone(name: str, port: int, who: str, *pieces: str) -> Process:
            (files / f"{name}.xml").write_text(sip.scenario(name, *pieces))
            (files / f"{name}.csv").write_text(f"SEQUENTIAL\n{who};;{user}\n")
            command = ["sipp", "-sf", f"{name}.xml", "-inf", f"{name}.csv", "-m", "1", "-nostdin"]
            command += ["-i", client, "-p", str(port), "-mp", str(port + 4_000)]
            # What comes again, since an answer waits for its checkpoint, is no reason to hang up.
            command += ["-default_behaviors", "all,-abortunexp", "-cid_str", "held%u"]
            # How long an answer takes is the machine's.
            command += ["-max_retrans", "1000", *signalling.ENDURING]
            command += ["-trace_logs", "-log_file", f"{name}.log"]
            where = f"{server}:{signalling.SIP_PORT}"
            started = stack.enter_context(process(name, [*command, where], place))
            started.wait_for_port(port)
            return started

        callee = phone("holding", signalling.CALLEE_PORT, user, *HOLDING)
        caller = phone("held", CALLER_PORT, "caller", *HELD)

        def ends_well() -> None:
            with closing(socket_in(site.clients)) as saying:
                lines = [f"INFO sip:caller@{client} SIP/2.0", f"Call-ID: {GO_ON}", "CSeq: 1 INFO"]
                lines += [f"Via: SIP/2.0/UDP {client};branch=z9hG4bK1", "From: <sip:a@b>;tag=1"]
                lines += ["To: <sip:a@b>", "Content-Length: 0", "", ""]
                saying.sendto("\r\n".join(lines).encode(), (client, CALLER_PORT))
            for started in (caller, callee):
                assert started.popen.wait(TAKEN_OVER_S_MAX) == 0, started.complaint()

        until_s = time.monotonic() + TAKEN_OVER_S_MAX
        log = files / "holding.log"
        while not log.exists() or "established" not in log.read_text():
            assert time.monotonic() < until_s, caller.complaint()
            time.sleep(0.1)
        yield ends_well


def _users(register: str) -> Path:
    words = register.split()
    return Path(words[words.index("-inf") + 1])
