"""Files of users: what is read, and what is refused with its place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from laxity.errors import InputError
from laxity.servers import users

if TYPE_CHECKING:
    from pathlib import Path

HA1 = "a56594b555f055f7aaa46bcc3f51ecc0"
LINE = f"anna:voice.example:{HA1}\n"


def test_users_become_a_table_that_only_its_owner_reads(tmp_path: Path) -> None:
    accounts = users.parse(f"{LINE}+4930123:voice.example:{HA1}\n".encode(), "users")
    assert accounts == users.Accounts("voice.example", {"anna": HA1, "+4930123": HA1})
    accounts.write(tmp_path / "made")
    table = tmp_path / "made" / users.TABLE
    assert table.read_text() == f"username(string) ha1(string)\nanna:{HA1}\n+4930123:{HA1}\n"
    assert [path.stat().st_mode & 0o777 for path in (table.parent, table)] == [0o700, 0o600]


@pytest.mark.parametrize(
    ("content", "place", "what"),
    [
        (f"{LINE}bela:voice.example\n", "2:1", "has 2 fields separated by `:` instead of 3"),
        (f"an na:voice.example:{HA1}", "1:1", "`an na` is no user's name"),
        (f"anna:voice example:{HA1}", "1:6", "`voice example` is no realm"),
        ("anna:voice.example:blue", "1:20", "`blue` is no HA1 of 32 hexadecimal digits"),
        (f"anna:voice.example:{HA1.upper()}", "1:20", "in lower case"),
        (LINE + LINE, "2:1", "the user `anna` is there already"),
        (
            f"{LINE}bela:other.example:{HA1}",
            "2:6",
            "is `other.example`, and `voice.example` before",
        ),
        ("ann\u00e4:x:y", "1:4", "no ASCII character"),
    ],
)
def test_a_line_that_is_wrong_is_refused_with_its_place(
    content: str, place: str, what: str
) -> None:
    with pytest.raises(InputError) as refused:
        users.parse(content.encode(), "users")
    assert refused.value.message.startswith(f"users:{place}: ")
    assert what in refused.value.message


def test_a_file_that_is_no_file_of_users_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users"

    def refusal() -> str:
        with pytest.raises(InputError) as refused:
            users.read(path)
        return str(refused.value)

    assert "there is no file" in refusal()
    os.mkfifo(path)
    assert "is a FIFO" in refusal()
    path.unlink()
    path.touch(mode=0o600)
    assert "has no users" in refusal()
    path.write_text(LINE)
    path.chmod(0o640)
    assert "has mode 0640" in refusal()
    assert f"chmod 600 {path}" in refusal()
    path.chmod(0o600)
    assert users.read(path).ha1 == {"anna": HA1}
    os.truncate(path, 5 << 20)
    assert "is too large: 5,242,880 bytes" in refusal()
