"""A whole site on this machine: hosts, balancers and DNS in namespaces, and protected guests.

A host is a network namespace with a daemon of `laxity protect` and a directory that is its root. A
switch connects hosts and balancers, in a namespace that clients share with the DNS server. All of
it is gone when the process that started it is.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from laxity import programs
from laxity.appliances import image
from laxity.errors import InputError, RefusedError
from laxity.lab.machine import QEMU
from laxity.namespaces import network
from laxity.namespaces.process import Place, Process, process, require, workplace
from laxity.servers import registrar, signalling
from laxity.servers.addresses import family, literal
from laxity.servers.control import socket_in
from laxity.servers.identity import Identity
from laxity.site import dns
from laxity.site.dns import Balancer
from laxity.site.protected import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from ipaddress import IPv4Network, IPv6Network

    from laxity.namespaces.network import Interface

PROGRAMS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "kamailio": "kamailio",
    "dnsmasq": "dnsmasq-base",
    QEMU: "qemu-system-x86",
}
"""With their Debian packages."""
DISCARD_PORT = 9
ANSWER_S = 1.0
UP_S_MAX = 1200.0
"""For all guests to be up and protected, on a machine that emulates them."""
LOOK_EVERY_S = 0.5
"""At guests that boot: who asks more often takes from them what they boot with."""
ELSEWHERE = {"armed", "empty", "hanging", "waiting", "refused", "starting"}
"""States of a guest on a host that does not run it; see docs/how-to/protection.md."""
SAFE, GONE, UP = "protected", "gone", "up"


@dataclass(frozen=True)
class Guest:
    """A protected virtual machine, as the site file has it."""

    name: str
    mode: str
    hosts: tuple[str, str]
    tap: str | None
    appliance: str | None
    """What it serves; None if it is none of the project's own."""
    interfaces: tuple[Interface, ...]
    """Those of an appliance, of which the first is for other servers; none for others."""

    @property
    def addresses(self) -> list[str]:
        """The addresses at which it serves."""
        return [str(interface.ip) for interface in self.interfaces]

    @property
    def address(self) -> str:
        """The first of its addresses, if it has one."""
        return next(iter(self.addresses), "")


@dataclass(frozen=True)
class Description:
    """What a site file says, as `laxity protect check` understands it."""

    path: Path
    domain: str | None
    tls: Identity | None
    """What balancers show to clients over TLS, if they do."""
    hosts: dict[str, str]
    """Their addresses."""
    balancers: tuple[Balancer, ...]
    guests: tuple[Guest, ...]
    keys: Path
    appliances: Path

    @property
    def registrars(self) -> list[Guest]:
        """Between whom the balancers divide the users, in the file's order."""
        return [guest for guest in self.guests if guest.appliance == image.SIGNALLING]

    @property
    def networks(self) -> dict[int, IPv4Network | IPv6Network]:
        """The networks of the appliances, the first of each version of IP."""
        found: dict[int, IPv4Network | IPv6Network] = {}
        for guest in self.guests:
            for interface in guest.interfaces:
                found.setdefault(interface.version, interface.network)
        return found

    def interface(self, name: str, address: str) -> Interface:
        """The interface that has this address.

        Raises InputError if the address is in none of the networks.
        """
        networks = self.networks
        network = networks.get(ip_address(address).version)
        if network is None or ip_address(address) not in network:
            known = " or ".join(map(str, networks.values()))
            help = "on one machine a site is one network: give it an address of that"
            raise InputError(f"{name} has {address}, which is not in {known}", help)
        return ip_interface(f"{address}/{network.prefixlen}")

    def clients(self) -> list[Interface]:
        """Where clients and the DNS server are: in each network the first address that nobody has.

        Raises InputError if the site is more than one network of a version of IP, or there is none
        or no room.
        """
        networks = self.networks
        if not networks:
            help = "write appliance and address of at least one [[vm]]"
            raise InputError("a site on one machine needs an appliance, whose network it is", help)
        named = [(guest.name, address) for guest in self.guests for address in guest.addresses]
        named += self.hosts.items()
        named += [(each.name, address) for each in self.balancers for address in each.addresses]
        taken = [self.interface(name, address).ip for name, address in named]
        free = []
        for one in networks.values():
            address = next((host for host in one.hosts() if host not in taken), None)
            if address is None:
                raise InputError(f"there is no address left in {one} for clients")
            free.append(ip_interface(f"{address}/{one.prefixlen}"))
        return free


class Host(TypedDict):
    """A host, with its address and port."""

    name: str
    address: str


class XenDomain(TypedDict):
    """A domain of Xen."""

    name: str


class TlsFiles(TypedDict):
    """The fields of an `Identity`."""

    certificate: str
    key: str


class BalancerRow(TypedDict):
    """The fields of a `Balancer`."""

    name: str
    addresses: list[str]
    priority: int
    weight: int


class Served(TypedDict):
    """The appliance of a virtual machine."""

    kind: str
    addresses: list[str]


class Settings(TypedDict):
    """The settings of the protocol."""

    mode: str


class Outside(TypedDict, total=False):
    """The network behind the gate."""

    tap: str


class Vm(TypedDict):
    """A protected virtual machine."""

    name: str
    hosts: list[str]
    settings: Settings
    outside: Outside
    appliance: Served | None


class SiteFile(TypedDict):
    """A site file, as `laxity protect check --json` understands it, as far as it is read here."""

    domain: str | None
    tls: TlsFiles | None
    hosts: list[Host]
    balancers: list[BalancerRow]
    vms: list[Vm]
    xen_domains: list[XenDomain]
    keys: str
    appliances: str


def read(path: Path) -> Description:
    """Reads a site file. Raises InputError, with places, if something is wrong with it."""
    done = subprocess.run(
        [programs.find(PROGRAM, path), "check", "--json", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RefusedError(done.stderr.strip())
    content: SiteFile = json.loads(done.stdout)
    if content["xen_domains"]:
        name = content["xen_domains"][0]["name"]
        help = "`laxity lab remus` shows such a domain outlive its host, in two emulated ones"
        raise InputError(f"{name} is a domain of Xen, and hosts in namespaces have none", help)
    tls = None
    if content["tls"] is not None and content["domain"] is not None:
        tls = Identity(Path(content["tls"]["certificate"]), Path(content["tls"]["key"]))
        tls.check(content["domain"])
    return Description(
        # Daemons run in directories of their own.
        path=path.absolute(),
        domain=content["domain"],
        tls=tls,
        hosts={host["name"]: _ip_of(host["address"]) for host in content["hosts"]},
        balancers=tuple(map(_balancer_of, content["balancers"])),
        guests=tuple(map(_guest, content["vms"])),
        keys=Path(content["keys"]),
        appliances=Path(content["appliances"]),
    )


def _ip_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _balancer_of(row: BalancerRow) -> Balancer:
    return Balancer(row["name"], tuple(row["addresses"]), row["priority"], row["weight"])


def _guest(vm: Vm) -> Guest:
    appliance, (first, standby) = vm["appliance"], vm["hosts"]
    return Guest(
        name=vm["name"],
        mode=vm["settings"]["mode"],
        hosts=(first, standby),
        tap=vm["outside"].get("tap"),
        appliance=appliance and appliance["kind"],
        interfaces=tuple(map(ip_interface, appliance["addresses"])) if appliance else (),
    )


@dataclass(frozen=True)
class Row:
    """What runs where, and how it is."""

    kind: str
    name: str
    address: str
    where: str
    """The host of a guest."""
    state: str
    group: int | None
    """The process group, which a signal ends at once; None without processes."""


@dataclass
class Site:
    """A site that runs."""

    description: Description
    files: Path
    """With logs, and a root for each host."""
    address: str
    """The first address of clients, and that of DNS."""
    namespaces: dict[str, Path]
    """The namespaces of hosts, of balancers, and, as `CLIENT`, of clients."""
    appliances: Path
    """With what the guests boot."""
    _stack: ExitStack
    _running: dict[str, Process] = field(default_factory=dict)

    @property
    def clients(self) -> Place:
        """From where the site is used."""
        return Place(self.namespaces[network.CLIENT], files=self.files)

    def start_host(self, name: str) -> None:
        """Starts the daemon of a host."""
        command = [str(programs.find(PROGRAM)), "run", str(self.description.path), "--as", name]
        command += ["--root", str(self.files / name), "--socket", str(self.control(name))]
        place = Place(self.namespaces[_host(name)], files=self.files)
        self._running[_host(name)] = self._stack.enter_context(process(_host(name), command, place))

    def control(self, host: str) -> Path:
        """The socket at which a host's daemon answers."""
        return self.files / f"{host}.sock"

    def start_balancer(self, balancer: Balancer) -> None:
        """Starts a balancer before all registrars."""
        name = _balancer(balancer.name)
        place = Place(self.namespaces[name], files=self.files)
        servers = [each for guest in self.description.registrars for each in guest.addresses]
        identity = self.description.tls
        tls = None
        if identity is not None:
            tls = signalling.Tls(identity, self.appliances / image.CERTIFICATE)
        started = signalling.balancer(name, balancer.addresses, servers, place, tls=tls)
        self._running[name] = self._stack.enter_context(started)

    def states(self, host: str) -> dict[str, str]:
        """What a host says of its guests; nothing if it is silent."""
        done = subprocess.run(
            [programs.find(PROGRAM), "status", "--json", "--socket", self.control(host)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return {}
        return {vm["name"]: vm["state"] for vm in json.loads(done.stdout)["vms"]}

    def rows(self) -> list[Row]:
        """Balancers, hosts and guests as they are now."""

        def row(kind: str, name: str, address: str, machine: str) -> Row:
            running = self._running[machine]
            alive = running.is_running
            group = running.popen.pid if alive else None
            return Row(kind, name, address, "", UP if alive else GONE, group)

        said = self.description
        states = {
            host: self.states(host) if self._running[_host(host)].is_running else {}
            for host in said.hosts
        }
        rows = [row("balancer", b.name, b.addresses[0], _balancer(b.name)) for b in said.balancers]
        rows += [row("host", name, address, _host(name)) for name, address in said.hosts.items()]
        for guest in said.guests:
            found = {host: states[host].get(guest.name, GONE) for host in guest.hosts}
            where = [host for host, state in found.items() if state not in {*ELSEWHERE, GONE}]
            there = where[0] if where else ""
            state = found[there] if there else ", ".join(f"{host} {found[host]}" for host in found)
            kind = guest.appliance or "guest"
            rows.append(Row(kind, guest.name, guest.address, there, state, None))
        return rows

    def await_all(self, say: Callable[[str], None]) -> None:
        """Waits until every guest is up and protected. Raises InputError if one does not get so."""
        deadline_s = time.monotonic() + UP_S_MAX
        waiting = list(self.description.guests)
        while waiting:
            for guest in list(waiting):
                if self.is_ready(guest):
                    waiting.remove(guest)
                    say(f"{guest.name} is up on {guest.hosts[0]}, and {guest.hosts[1]} protects it")
                    if guest.appliance == image.SIGNALLING and not self.asks_for_proof(guest):
                        say(f"{guest.name}: {image.AUTHENTICATION_OFF}")
            dead = [name for name, each in self._running.items() if not each.is_running]
            if dead:
                raise InputError(f"{dead[0]} has ended: {self._running[dead[0]].complaint()}")
            if waiting and time.monotonic() > deadline_s:
                names = ", ".join(guest.name for guest in waiting)
                complaint = self._running[_host(waiting[0].hosts[0])].complaint()
                raise InputError(f"not up and protected after {UP_S_MAX:g} s: {names}; {complaint}")
            time.sleep(LOOK_EVERY_S)

    def asks_for_proof(self, guest: Guest) -> bool:
        """Whether a registrar wants to know who somebody is before it answers."""
        clients = self.namespaces[network.CLIENT]
        answer = registrar.ask(
            clients, guest.address, "REGISTER", f"nobody@{literal(guest.address)}"
        )
        return answer.startswith(b"SIP/2.0 401 ")

    def is_ready(self, guest: Guest) -> bool:
        """Whether it is protected where it begins, and serves."""
        if self.states(guest.hosts[0]).get(guest.name) != SAFE:
            return False
        namespace = self.namespaces[network.CLIENT]
        try:
            if guest.appliance == image.SIGNALLING:
                registrar.ask(namespace, guest.address, "OPTIONS", literal(guest.address), tries=1)
            elif guest.appliance in image.MEDIA_SERVERS:
                return answers(namespace, guest.address)
        except InputError:
            return False
        return True


def answers(namespace: Path, address: str) -> bool:
    """Whether a machine says that it has nobody at a port: its network is up.

    A media server tells nobody but signalling servers more.
    """
    with closing(socket_in(namespace, family=family(address))) as asking:
        asking.settimeout(ANSWER_S)
        try:
            asking.connect((address, DISCARD_PORT))
            asking.send(b"")
            asking.recv(1)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _host(name: str) -> str:
    """What its namespace is called; a balancer may have the same name."""
    return f"host-{name}"


def _balancer(name: str) -> str:
    return f"balancer-{name}"


@contextmanager
def site(description: Description, say: Callable[[str], None]) -> Iterator[Site]:
    """A site that is up and protected. Raises InputError if this machine cannot have it."""
    clients = description.clients()
    require(PROGRAMS)
    with ExitStack() as stack:
        files = stack.enter_context(workplace())
        appliances = _install(description, files, say)
        machines = [
            network.Machine(
                _host(name),
                [description.interface(name, address)],
                tuple(g.tap for g in description.guests if name in g.hosts and g.tap),
            )
            for name, address in description.hosts.items()
        ]
        machines += [
            network.Machine(
                _balancer(each.name),
                [description.interface(each.name, address) for address in each.addresses],
            )
            for each in description.balancers
        ]
        namespaces = stack.enter_context(network.switch(clients, machines))
        address = str(clients[0].ip)
        made = Site(description, files, address, namespaces, appliances, stack)
        if description.domain is not None:
            server = dns.server(
                *(description.domain, description.balancers, address, made.clients),
                has_tls=description.tls is not None,
            )
            stack.enter_context(server)
        for balancer in description.balancers:
            made.start_balancer(balancer)
        for host in description.hosts:
            made.start_host(host)
        say(f"{len(description.hosts)} hosts boot {len(description.guests)} guests")
        made.await_all(say)
        yield made


def _install(description: Description, files: Path, say: Callable[[str], None]) -> Path:
    """Gives each host its root, with the site's keys and what appliances boot, which it returns."""
    keys = files / "keys"
    made = subprocess.run(
        [programs.find(PROGRAM), "keys", description.path, keys],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise RefusedError(made.stderr.strip())
    appliances = description.appliances
    kinds = {guest.appliance for guest in description.guests if guest.appliance}
    needed = {image.ROOT.format(kind) for kind in kinds}
    if description.tls is not None:
        needed.add(image.CERTIFICATE)
    if not all((appliances / name).exists() for name in needed):
        appliances = files / "appliances"
        for kind in sorted(kinds):
            say(f"making the appliance {kind}")
            image.build(kind, appliances, say)
    for host in description.hosts:
        root = files / host
        places = {description.keys: keys, description.appliances: appliances}
        for place, what in places.items():
            link = root / place.relative_to("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(what)
    return appliances
