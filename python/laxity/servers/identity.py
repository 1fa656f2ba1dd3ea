"""The identity of a server of SIP over TLS: a certificate, and the key that belongs to it."""

from __future__ import annotations

import os
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from laxity import files
from laxity.errors import InputError

BYTES_MAX = 1 << 20
"""The largest file of certificates, or of a key, that is read."""
DAYS = 3650
"""How long a certificate of a server's own is valid; it ends with the appliance that has it."""


@dataclass(frozen=True)
class Identity:
    """Files, in PEM: the certificate with those between it and its authority, and the key."""

    certificate: Path
    key: Path

    def check(self, domain: str) -> None:
        """Raises InputError unless a client that trusts the certificate would accept the server.

        The server then proves that it has the key, for now, and for the SIP domain (RFC 5922, 7).
        Others than its owner must not be able to read the key.
        """
        chain = files.read(self.certificate, BYTES_MAX, "a certificate")
        key = files.read_secret(self.key, BYTES_MAX, "a key")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        # OpenSSL reads keys from files alone, and those that were named may be others by now.
        with tempfile.TemporaryDirectory(prefix="laxity.") as directory:
            read = Identity(Path(directory, "certificate"), Path(directory, "key"))
            read.certificate.write_bytes(chain)
            read.key.write_bytes(key)
            try:
                # An encrypted key would ask for its passphrase at the terminal.
                server.load_cert_chain(read.certificate, read.key, password="")
                client.load_verify_locations(read.certificate)
            except ssl.SSLError as error:
                self._refuse(error)
        try:
            _shake_hands(server, client, domain)
        except ssl.SSLCertVerificationError as error:
            raise InputError(
                f"{self.certificate} serves no client of {domain}: {error.verify_message}",
                f"have a certificate made that is valid now, and for DNS:{domain}",
            ) from None

    def _refuse(self, error: ssl.SSLError) -> None:
        if error.reason == "KEY_VALUES_MISMATCH":
            what = f"{self.key} is not the key of {self.certificate}"
            raise InputError(what, "name the two that were made together") from None
        raise InputError(
            f"{self.certificate} and {self.key} are no certificate with its key",
            "write both as PEM, the key without a passphrase",
        ) from None


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, domain: str) -> None:
    """Has a client connect to a server, without a network."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(down, up, server_hostname=domain),
        server.wrap_bio(up, down, server_side=True),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)


def make(name: str, directory: Path) -> Identity:
    """Makes a key, and a certificate that it signs itself, for those who trust exactly this one.

    Raises InputError if the program `openssl` is missing.
    """
    made = Identity(directory / f"{name}.crt", directory / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", str(DAYS), "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName=DNS:{name}"]
    command += ["-keyout", str(made.key), "-out", str(made.certificate)]
    try:
        # A key that is there with other rights would keep them.
        made.key.unlink(missing_ok=True)
        os.close(os.open(made.key, os.O_CREAT | os.O_EXCL, 0o600))
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise InputError("there is no `openssl`", "install the Debian package openssl") from None
    return made
