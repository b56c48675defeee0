"""`ssh-keygen -Y sign` as a process: with a key file, an agent or a security key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from edgekit.device.trust import ssh_keygen, sshsig
from edgekit.device.trust.signed_json import read_small
from edgekit.runner.errors import TrustError


def sign(data: bytes, key: Path, namespace: str) -> bytes:
    """Return the armoured signature of `data`. ssh-keygen itself asks for a passphrase or a touch.

    `key` is a private key, or a `.pub` file whose private half an agent holds. Raises TrustError if nothing was signed.
    """
    if not key.is_file():
        raise TrustError(f"{key}: no such key; make one with `ssh-keygen -t ed25519 -f {key}`")
    program = _find()
    with ssh_keygen.private_folder() as folder:
        message = Path(folder) / "message"
        message.write_bytes(data)
        command = [program, "-q", "-Y", "sign", "-f", str(key), "-n", namespace, str(message)]
        # On a terminal, standard error is not captured, because ssh-keygen asks there for a passphrase or a touch.
        errors_to = None if sys.stderr.isatty() else subprocess.PIPE
        result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=errors_to, check=False)
        if result.returncode != 0:
            lines = (result.stderr or b"").decode("utf-8", "replace").strip().splitlines()
            detail = f" ({lines[-1][:200]})" if lines else ""
            raise TrustError(
                f"{key}: ssh-keygen did not sign{detail}; give a private key, or a .pub that an agent holds"
            )
        return message.with_name("message.sig").read_bytes()


def _find() -> str:
    """Return the ssh-keygen in PATH, because the system's own may lack support for security keys.

    Raises TrustError if there is none.
    """
    program = shutil.which("ssh-keygen")
    if program is None:
        raise TrustError(
            f"ssh-keygen: not found in PATH ({os.environ.get('PATH', '')[:200]!r}), so nothing can be signed here; "
            "install the package openssh-client"
        )
    return program


def public_half(key: Path) -> str:
    """Return `TYPE BASE64` of a private key from the `.pub` file beside it, or of a `.pub` file itself."""
    path = key if key.suffix == ".pub" else key.with_name(key.name + ".pub")
    return read_public(path, f"`ssh-keygen -y -f {key} > {path}` makes it")


def read_public(path: Path, fix: str = "give the .pub file of the key") -> str:
    """Return `TYPE BASE64` of a `.pub` file, which ssh-keygen must accept too. Raises TrustError otherwise."""
    text = read_small(path.resolve(), sshsig.LARGEST_KEY, fix).decode("utf-8", "replace")
    key = sshsig.public_key(text, str(path))
    result = subprocess.run([_find(), "-l", "-f", str(path)], capture_output=True, check=False)
    if result.returncode != 0:
        raise TrustError(f"{path}: ssh-keygen does not accept this key; {fix}")
    return key
