"""Public keys and signatures as OpenSSH writes them: bounded, and in one spelling only.

`ssh-keygen` takes some altered armour for the same signature, such as one with another line end. Here it is refused.
Nothing is verified here. Format: PROTOCOL.sshsig of OpenSSH.
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
    """`TYPE BASE64` of a line in a `.pub` file, its comment left out; TrustError for anything else."""
    words = text.split()
    if len(text) > LARGEST_KEY or len(text.splitlines()) != 1 or len(words) < 2:
        raise TrustError(f"{where}: got {text[:60]!r}; needed one line of an OpenSSH public key, a .pub file")
    kind, encoded = words[:2]
    if kind not in KEY_TYPES:
        raise TrustError(f"{where}: a key of type {kind[:40]!r}; use one made by `ssh-keygen -t ed25519` or `-t ecdsa`")
    try:
        blob = binascii.a2b_base64(encoded.encode("ascii"))
        found = next(_strings(blob)).decode("ascii")
    except (ValueError, StopIteration):
        found = ""
    if found != kind or _key(blob) != f"{kind} {encoded}":
        raise TrustError(f"{where}: {kind} {encoded[:20]}… is damaged; copy the .pub file again")
    return f"{kind} {encoded}"


def fingerprint(key: str) -> str:
    """`SHA256:…` of a public key, as `ssh-keygen -l` shows it."""
    from edgekit.runner.bundle import sha256

    digest = bytes.fromhex(sha256.hexdigest(binascii.a2b_base64(key.split()[1])))
    return "SHA256:" + binascii.b2a_base64(digest, newline=False).decode().rstrip("=")


def signing_key(armour: bytes, namespace: str, where: str) -> str:
    """The public key that a signature says it was made with; TrustError for another spelling or namespace."""
    broken = TrustError(f"{where}: not a signature as ssh-keygen writes it; copy it again or sign again")
    try:
        blob = binascii.a2b_base64(armour[len(BEGIN) : -len(END)])
        key, found, _reserved, _hash, _signature = _strings(blob[len(MAGIC) :])
        name = found.decode("ascii")
        text = _key(key)
    except (ValueError, StopIteration):
        raise broken from None
    if not blob.startswith(MAGIC) or armour != _armoured(blob):
        raise broken
    if name != namespace:
        raise TrustError(f"{where}: signed in the namespace {name[:60]!r}, needed {namespace!r}; sign with edgekit")
    return public_key(text, where)


def _key(blob: bytes) -> str:
    kind = next(_strings(blob)).decode("ascii")
    return f"{kind} {binascii.b2a_base64(blob, newline=False).decode()}"


def _armoured(blob: bytes) -> bytes:
    text = binascii.b2a_base64(blob, newline=False)
    lines = [text[start : start + LINE] + b"\n" for start in range(0, len(text), LINE)]
    return BEGIN + b"".join(lines) + END


def _strings(blob: bytes) -> Iterator[bytes]:
    """Each with its length of four bytes before it; ValueError where they do not end with the blob."""
    while blob:
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size:
            raise ValueError("cut short")
        yield blob[4 : 4 + size]
        blob = blob[4 + size :]
