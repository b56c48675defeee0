"""Public keys and signatures as OpenSSH writes them: bounded, and in one spelling only.

`ssh-keygen` accepts a signature whose text was altered in some ways, for example with other line endings. This module
refuses such a signature. Nothing is verified here. The format is described in PROTOCOL.sshsig of OpenSSH.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator

from edgekit.runner.errors import TrustError

KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
BEGIN, END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"
MAGIC = b"SSHSIG\0\0\0\1"
LINE = 70
LARGEST_KEY = 1024
LARGEST_SIGNATURE = 4096


def public_key(text: str, where: str) -> str:
    """Return `TYPE BASE64` of a line in a `.pub` file, without its comment. Raises TrustError for anything else."""
    words = text.split()
    if len(text) > LARGEST_KEY or len(text.splitlines()) != 1 or len(words) < 2:
        raise TrustError(f"{where}: got {text[:60]!r}; it must be one line of an OpenSSH public key, as in a .pub file")
    kind, encoded = words[:2]
    if kind not in KEY_TYPES:
        raise TrustError(f"{where}: a key of type {kind[:40]!r}; use one made by `ssh-keygen -t ed25519` or `-t ecdsa`")
    try:
        blob = binascii.a2b_base64(encoded.encode("ascii"))
        encoded_kind = next(_strings(blob)).decode("ascii")
    except (ValueError, StopIteration):
        encoded_kind = ""
    if encoded_kind != kind or _key(blob) != f"{kind} {encoded}":
        raise TrustError(f"{where}: {kind} {encoded[:20]}… is damaged; copy the .pub file again")
    return f"{kind} {encoded}"


def fingerprint(key: str) -> str:
    """Return `SHA256:…` of a public key, as `ssh-keygen -l` shows it."""
    from edgekit.runner.bundle import sha256

    digest = bytes.fromhex(sha256.hexdigest(binascii.a2b_base64(key.split()[1])))
    return "SHA256:" + binascii.b2a_base64(digest, newline=False).decode().rstrip("=")


def signing_key(armour: bytes, namespace: str, where: str) -> str:
    """Return the public key that a signature claims to be made with.

    Raises TrustError for another spelling or namespace.
    """
    broken = TrustError(f"{where}: not a signature as ssh-keygen writes it; copy it again or sign again")
    try:
        blob = binascii.a2b_base64(armour[len(BEGIN) : -len(END)])
        key, encoded_namespace, _reserved, _hash, _signature = _strings(blob[len(MAGIC) :])
        name = encoded_namespace.decode("ascii")
        text = _key(key)
    except (ValueError, StopIteration):
        raise broken from None
    if not blob.startswith(MAGIC) or armour != _armour(blob):
        raise broken
    if name != namespace:
        raise TrustError(
            f"{where}: signed in the namespace {name[:60]!r}, but it must be {namespace!r}; sign with edgekit"
        )
    return public_key(text, where)


def _key(blob: bytes) -> str:
    kind = next(_strings(blob)).decode("ascii")
    return f"{kind} {binascii.b2a_base64(blob, newline=False).decode()}"


def _armour(blob: bytes) -> bytes:
    text = binascii.b2a_base64(blob, newline=False)
    lines = [text[start : start + LINE] + b"\n" for start in range(0, len(text), LINE)]
    return BEGIN + b"".join(lines) + END


def _strings(blob: bytes) -> Iterator[bytes]:
    """Yield the strings in a blob, each of which follows its length in four bytes.

    Raises ValueError if the last string is cut short.
    """
    while blob:
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size:
            raise ValueError("cut short")
        yield blob[4 : 4 + size]
        blob = blob[4 + size :]
