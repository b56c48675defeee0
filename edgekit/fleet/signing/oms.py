"""OpenSSF Model Signing (OMS): a second signature, for those who verify models with that format.

It is made and checked by the program `model_signing`, which must be in PATH. That program needs other versions of
packages than edgekit, so it is installed in an environment of its own. Devices do not check this signature.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.runner.errors import TrustError
from edgekit.runner.files import remove_quietly

PROGRAM = "model_signing"
SUFFIX = ".oms.sig"
LIMIT_S = 300
KEY = "`openssl ecparam -name prime256v1 -genkey -noout` makes a key"


def signature_path(bundle: Path) -> Path:
    """Return the path of the signature of a bundle."""
    return bundle.with_name(bundle.name + SUFFIX)


def check_ready(key: Path) -> str:
    """Return the path of the program. Raises ConfigError if it is missing, and TrustError if the key is missing."""
    _there(key)
    program = shutil.which(PROGRAM)
    if program is None:
        raise ConfigError(f"--oms: {PROGRAM} is not in PATH; see 'Another format' in docs/how-to/sign.md")
    return program


def sign(bundle: Path, key: Path) -> str:
    """Sign with a private key (an elliptic curve's, as PEM) and write the signature. Returns a line that reports it."""
    path, temporary = signature_path(bundle), bundle.with_name(f".{bundle.name}.{os.getpid()}.oms.tmp")
    try:
        _run("sign", bundle, key, ["--signature", str(temporary), "--private_key", str(key)])
        os.replace(temporary, path)
    finally:
        remove_quietly(temporary)
    return f"OMS         {path.name}, signed with {key.name}"


def verify(bundle: Path, key: Path) -> str:
    """Check the signature with a public key (PEM), by the program's own verifier. Returns a line that reports it."""
    _run("verify", bundle, key, ["--signature", str(_there(signature_path(bundle))), "--public_key", str(key)])
    return f"OMS         {signature_path(bundle).name} verifies with {key.name}"


def _there(path: Path) -> Path:
    if not path.is_file():
        fix = "make it with `edgekit sign --oms KEY`" if path.name.endswith(SUFFIX) else KEY
        raise TrustError(f"{path}: no such file; {fix}")
    return path


def _run(verb: str, bundle: Path, key: Path, arguments: list[str]) -> None:
    command = [check_ready(key), verb, "key", str(bundle), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise TrustError(f"{bundle}: {PROGRAM} did not answer within {LIMIT_S} s") from None
    if done.returncode != 0:
        last = "".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:])[:300]
        action = "verify the OMS signature" if verb == "verify" else "sign"
        raise TrustError(f"{bundle}: {PROGRAM} did not {action} ({last or f'exit code {done.returncode}'})")
