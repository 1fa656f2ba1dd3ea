"""SIPp's scenarios of the basic flows of RFC 3261, for two phones and a transfer to a third.

A scenario is a text of pieces: what one party sends and waits for, in order. A phone fails, and
SIPp says so by its exit code, where something else comes than the next piece waits for.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

Way = Literal["sendrecv", "sendonly", "inactive"]
"""The direction of a stream (RFC 3264): on hold it is `sendonly`."""
PCMU, PCMA = 0, 8

FROM_CALLER = "From: <sip:[field0]@[remote_ip]>;tag=[pid]a[call_number]"
TO_CALLEE = "To: <sip:[field2]@[remote_ip]>"
TO_TAG = "[peer_tag_param]"
CALLEE_TAG = ";tag=[pid]b[call_number]"
MEDIA = '<ereg regexp="c=IN IP4 192.0.2.41" search_in="body" check_it="true" assign_to="media"/>'
"""Fails where a session description does not send to the media server."""
CREDENTIALS = "[field1]"


def scenario(name: str, *pieces: str) -> str:
    """A whole one. From the injection file: its own name, its credentials, the other's name."""
    body = "".join(pieces)
    named = re.findall(r'assign_to="([^"]*)"', body)
    names = sorted({name for each in named for name in each.split(",")})
    used = f'<Reference variables="{",".join(names)}"/>' if names else ""
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    return f'{head}\n<scenario name="{name}">\n{body}{used}\n</scenario>\n'


def description(way: Way = "sendrecv", law: int = PCMU, version: int = 1) -> list[str]:
    """A session description of one stream (RFC 8866)."""
    return [
        "v=0",
        f"o=- 1 {version} IN IP4 [local_ip]",
        "s=-",
        "c=IN IP4 [local_ip]",
        "t=0 0",
        f"m=audio [media_port] RTP/AVP {law}",
        f"a={way}",
    ]


def _message(first: str, headers: list[str], body: list[str], kind: str) -> str:
    type_ = [f"Content-Type: {kind}"] if body else []
    lines = [first, *headers, *type_, "Content-Length: [len]", "", *body]
    return "<![CDATA[\n\n" + "\n".join(lines) + "\n\n]]>"


def _send(message: str, attributes: str = "") -> str:
    return f"<send{attributes}>{message}</send>\n"


def request(
    method: str,
    number: int,
    *more: str,
    body: list[str] | None = None,
    kind: str = "application/sdp",
    uri: str = "sip:[field2]@[remote_ip]:[remote_port]",
    to_tag: str = "",
    branch: str = "[branch]",
    of: str | None = None,
    again: bool = True,
) -> str:
    """A request of the caller; `of` is the method that CSeq names, where it is another."""
    headers = [
        f"Via: SIP/2.0/[transport] [local_ip]:[local_port];branch={branch}",
        *("Max-Forwards: 70", FROM_CALLER, TO_CALLEE + to_tag, "Call-ID: [call_id]"),
        f"CSeq: {number} {of or method}",
        *("Contact: <sip:[field0]@[local_ip]:[local_port]>", *more),
    ]
    message = _message(f"{method} {uri} SIP/2.0", headers, body or [], kind)
    return _send(message, ' retrans="500"' if again and method != "ACK" else "")


def register() -> str:
    """Registers, with credentials."""
    head = "REGISTER sip:[remote_ip]:[remote_port] SIP/2.0"
    headers = [
        "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]",
        *("Max-Forwards: 70", FROM_CALLER, "To: <sip:[field0]@[remote_ip]>", "Call-ID: [call_id]"),
        *("CSeq: {} REGISTER", "Contact: <sip:[field0]@[local_ip]:[local_port]>", "Expires: 86400"),
    ]
    text = "\n".join(headers)
    ask, prove = (
        _send(_message(head, [text.format(n), *more], [], ""), ' retrans="500"')
        for n, more in ((1, []), (2, [CREDENTIALS]))
    )
    return ask + '<recv response="401" auth="true"/>\n' + prove + '<recv response="200"/>\n'


def within(
    method: str,
    number: int,
    *more: str,
    body: list[str] | None = None,
    kind: str = "application/sdp",
) -> str:
    """A request of the caller within the dialog."""
    return request(
        method, number, "[routes]", *more, body=body, kind=kind, uri="[next_url]", to_tag=TO_TAG
    )


def invite(body: list[str] | None = None) -> str:
    """The caller calls, is asked for credentials, and calls with them: CSeq 2, to be answered."""
    offer = description() if body is None else body
    return (
        request("INVITE", 1, body=offer)
        + await_("100", optional=True)
        + '<recv response="407" auth="true"/>\n'
        + request("ACK", 1, to_tag=TO_TAG, branch="[branch-3]")
        + request("INVITE", 2, CREDENTIALS, body=offer)
        + await_("100", optional=True)
    )


def await_(code: str, *, optional: bool = False, begins: bool = False, action: str = "") -> str:
    """An answer; `begins` has the dialog's route taken from it."""
    attributes = ' optional="true"' if optional else ""
    attributes += ' rrs="true"' if begins else ""
    inside = f"<action>{action}</action>" if action else ""
    return f'<recv response="{code}"{attributes}>{inside}</recv>\n'


def hear(
    method: str, *, begins: bool = False, action: str = "", optional: bool = False, goto: str = ""
) -> str:
    """A request of the other party, after which the scenario goes on at a label if one is given."""
    attributes = ' optional="true"' if optional else ""
    attributes += ' rrs="true"' if begins else ""
    attributes += f' next="{goto}"' if goto else ""
    inside = f"<action>{action}</action>" if action else ""
    return f'<recv request="{method}"{attributes}>{inside}</recv>\n'


def reply(
    status: str, *more: str, body: list[str] | None = None, tag: str = "", reliable: bool = False
) -> str:
    """Answers the last request; the callee's tag belongs to what has none yet."""
    headers = [
        *("[last_Via:]", "[last_From:]", f"[last_To:]{tag}", "[last_Call-ID:]", "[last_CSeq:]"),
        *("[last_Record-Route:]", "Contact: <sip:[field0]@[local_ip]:[local_port]>", *more),
    ]
    message = _message(f"SIP/2.0 {status}", headers, body or [], "application/sdp")
    return _send(message, ' retrans="500"' if reliable else "")


def referred(number: int, to: str) -> str:
    """A REFER, its 202 and the first NOTIFY, which may come first (RFC 6665, section 4.1.2.4)."""
    early, done = "1", "2"
    way = '<ereg regexp="(Via:.*)Max-Forwards:" search_in="msg" assign_to="media,way"/>'
    # It is answered once both are there: SIPp takes nothing for right that comes before it sends.
    answer = _message("SIP/2.0 200 OK", ["[$way]CSeq: 1 NOTIFY"], [], "")
    return (
        within("REFER", number, f"Refer-To: {to}")
        + hear("NOTIFY", action=way, optional=True, goto=early)
        + await_("202")
        + hear("NOTIFY", action=way, goto=done)
        + f'<label id="{early}"/>\n'
        + await_("202")
        + f'<label id="{done}"/>\n'
        + _send(answer)
    )


def acknowledge(number: int, body: list[str] | None = None) -> str:
    """The caller's ACK of a 200."""
    return within("ACK", number, body=body)


def answered() -> str:
    """The callee's part of a call that it answers."""
    return (
        hear("INVITE", begins=True, action=MEDIA)
        + reply("180 Ringing", tag=CALLEE_TAG)
        + reply("200 OK", body=description(), tag=CALLEE_TAG, reliable=True)
        + hear("ACK")
    )


def called() -> str:
    """The caller's part of a call that is answered."""
    return invite() + await_("180") + await_("200", begins=True, action=MEDIA) + acknowledge(2)


def ended(number: int) -> str:
    """The caller hangs up."""
    return within("BYE", number) + await_("200")


def hung_up() -> str:
    """The callee's part of that."""
    return hear("BYE") + reply("200 OK")


def ringing() -> str:
    """The callee's part of a call that it does not answer, and that is cancelled."""
    way = '<ereg regexp="(Via:.*)Max-Forwards:" search_in="msg" assign_to="media,way"/>'
    headers = [
        "[$way]CSeq: [last_cseq_number] INVITE",
        *("[last_From:]", f"[last_To:]{CALLEE_TAG}", "[last_Call-ID:]"),
    ]
    terminated = _message("SIP/2.0 487 Request Terminated", headers, [], "")
    return (
        hear("INVITE", action=MEDIA + way)
        + reply("180 Ringing", tag=CALLEE_TAG)
        + hear("CANCEL")
        + reply("200 OK", tag=CALLEE_TAG)
        # The way back is that of the INVITE: a CANCEL goes from one hop to the next alone.
        + _send(terminated, ' retrans="500"')
        + hear("ACK")
    )


def on_hold() -> str:
    """Fails where a session description does not put its stream on hold."""
    return '<ereg regexp="a=sendonly" search_in="body" check_it="true" assign_to="media"/>'


def transferred() -> str:
    """The callee's part of a transfer (RFC 3515): it is told to call a third, does, and says so.

    The call to the third has a Call-ID that SIPp takes for this scenario's, by its end.
    """
    way = {"target": ("Contact:", "&lt;(.*)&gt;"), "route": ("Record-Route:", "(.*)")}

    def keep(end: str, more: dict[str, str]) -> str:
        wanted = way | {name: (header, "(.*)") for name, header in more.items()}
        return "".join(
            f'<ereg regexp="{form}" search_in="hdr" header="{header}" '
            f'assign_to="media,{name}{end}"/>'
            for name, (header, form) in wanted.items()
        )

    other = "Call-ID: other///[call_id]"
    to_third = ["From: <sip:[field0]@[remote_ip]>;tag=[pid]c[call_number]", "Max-Forwards: 70"]
    here = "Contact: <sip:[field0]@[local_ip]:[local_port]>"

    def to(
        method: str,
        number: int,
        *more: str,
        uri: str,
        far: str = " <sip:[field2]@[remote_ip]>",
        branch: str = "[branch]",
        body: list[str] | None = None,
    ) -> str:
        via = f"Via: SIP/2.0/[transport] [local_ip]:[local_port];branch={branch}"
        headers = [via, *to_third, f"To:{far}", other]
        headers += [f"CSeq: {number} {method}", here, *more]
        return _send(_message(f"{method} {uri} SIP/2.0", headers, body or [], "application/sdp"))

    def notify(number: int, state: str, fragment: str) -> str:
        headers = [
            "Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]",
            f"From:[$own1]{CALLEE_TAG}",
            *("To:[$peer1]", "Call-ID: [call_id]", "Max-Forwards: 70", "Route:[$route1]"),
            *(f"CSeq: {number} NOTIFY", here, "Event: refer", f"Subscription-State: {state}"),
        ]
        message = _message("NOTIFY [$target1] SIP/2.0", headers, [fragment], "message/sipfrag")
        return _send(message) + await_("200")

    third = "sip:[field2]@[remote_ip]:[remote_port]"
    return (
        hear("INVITE", begins=True, action=MEDIA + keep("1", {"peer": "From:", "own": "To:"}))
        + reply("200 OK", body=description(), tag=CALLEE_TAG, reliable=True)
        + hear("ACK")
        + hear("REFER")
        + reply("202 Accepted")
        + notify(1, "active;expires=60", "SIP/2.0 100 Trying")
        + to("INVITE", 1, uri=third, body=description())
        + await_("100", optional=True)
        + '<recv response="407" auth="true"/>\n'
        + to("ACK", 1, uri=third, branch="[branch-3]")
        + to("INVITE", 2, CREDENTIALS, uri=third, body=description())
        + await_("100", optional=True)
        + await_("180")
        + await_("200", action=MEDIA + keep("2", {"peer": "To:"}))
        + to("ACK", 2, "Route:[$route2]", uri="[$target2]", far="[$peer2]")
        + notify(2, "terminated;reason=noresource", "SIP/2.0 200 OK")
        + hung_up()
        + to("BYE", 3, "Route:[$route2]", uri="[$target2]", far="[$peer2]")
        + await_("200")
    )


CHALLENGE = r'^(\w+)-Authenticate: Digest realm="([^"]+)", nonce="([^"]+)"'


def credentials(challenge: str, user: str, password: str, method: str, uri: str) -> str:
    """The header that answers a challenge (RFC 2617 with `qop`)."""
    found = re.search(CHALLENGE, challenge, re.MULTILINE)
    assert found is not None, challenge
    kind = {"WWW": "Authorization", "Proxy": "Proxy-Authorization"}[found[1]]
    realm, nonce = found[2], found[3]

    def md5(*parts: str) -> str:
        return hashlib.md5(":".join(parts).encode()).hexdigest()  # noqa: S324 - as the protocol has it

    ha1, ha2 = md5(user, realm, password), md5(method, uri)
    digest = md5(ha1, nonce, "00000001", "c", "auth", ha2)
    return (
        f'{kind}: Digest username="{user}", realm="{realm}", nonce="{nonce}", uri="{uri}", '
        f'qop=auth, nc=00000001, cnonce="c", response="{digest}"'
    )
