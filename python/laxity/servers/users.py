"""The users of a registrar, from a file as `htdigest` writes it: `USER:REALM:HA1`, a line each."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from laxity import files
from laxity.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

BYTES_MAX = 4 << 20
"""More than 40,000 users."""
USER = re.compile(r"[A-Za-z0-9._~+*#-]{1,64}")
REALM = re.compile(r"[A-Za-z0-9._-]{1,128}")
HA1 = re.compile(r"[0-9a-f]{32}")
LINE = "write USER:REALM:HA1, where HA1 is the MD5 sum of USER:REALM:PASSWORD, as htdigest does"
TABLE = "subscriber"
"""The name of the table in kamailio.cfg."""


@dataclass(frozen=True)
class Accounts:
    """The users who may register and call, each with a digest (RFC 2617, HA1)."""

    realm: str
    ha1: dict[str, str]
    """By user."""

    def table(self) -> str:
        """The table as Kamailio's module db_text reads it."""
        rows = (f"{user}:{ha1}\n" for user, ha1 in self.ha1.items())
        return f"username(string) ha1(string)\n{''.join(rows)}"

    def write(self, directory: Path) -> None:
        """Makes a directory with the table, which nobody else can read."""
        directory.mkdir(mode=0o700)
        descriptor = os.open(directory / TABLE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self.table())


def read(path: Path) -> Accounts:
    """Reads a file of users.

    Raises InputError with line and column where a line is wrong, and where others than its owner
    can read the file: an HA1 is as good as the password.
    """
    content = files.read_secret(path, BYTES_MAX, "a file of users")
    return parse(content, str(path))


def parse(content: bytes, name: str) -> Accounts:
    """The users in a file's content; see `read`."""
    realm, found = "", dict[str, str]()

    def refuse(line: int, column: int, what: str, help: str = LINE) -> NoReturn:
        raise InputError(f"{name}:{line}:{column}: {what}", help)

    for number, octets in enumerate(content.splitlines(), start=1):
        try:
            line = octets.decode("ascii")
        except UnicodeDecodeError as error:
            refuse(number, error.start + 1, "this is no ASCII character")
        fields = line.split(":")
        if len(fields) != 3:  # noqa: PLR2004 - user, realm and digest
            refuse(number, 1, f"this line has {len(fields)} fields separated by `:` instead of 3")
        column = 1
        for field, form, what in zip(
            fields,
            (USER, REALM, HA1),
            ("user's name", "realm", "HA1 of 32 hexadecimal digits in lower case"),
            strict=True,
        ):
            if not form.fullmatch(field):
                refuse(number, column, f"`{field}` is no {what}")
            column += len(field) + 1
        user, of, ha1 = fields
        if user in found:
            refuse(number, 1, f"the user `{user}` is there already", "leave one of the two out")
        if realm and of != realm:
            help = "give all users of a file one realm: a server asks for one"
            refuse(number, len(user) + 2, f"the realm is `{of}`, and `{realm}` before", help)
        realm, found[user] = of, ha1
    if not found:
        raise InputError(f"{name} has no users", LINE)
    return Accounts(realm, found)
