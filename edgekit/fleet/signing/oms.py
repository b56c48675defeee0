"""OpenSSF Model Signing (OMS): a second signature, for those who verify models with that format.

Its own program makes and checks it. That needs other versions of packages than the workbook, so it lies in an
environment of its own; `model_signing` must be in PATH. Devices ask for none of it.
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
    """Where the signature of a bundle lies."""
    return bundle.with_name(bundle.name + SUFFIX)


def check_ready(key: Path) -> str:
    """The path of the program; ConfigError where it is not there, TrustError where the key is not."""
    _there(key)
    program = shutil.which(PROGRAM)
    if program is None:
        raise ConfigError(f"--oms: {PROGRAM} is not in PATH; see 'Another format' in docs/how-to/sign.md")
    return program


def sign(bundle: Path, key: Path) -> str:
    """Write the signature with a private key, PEM of an elliptic curve; a line that says so."""
    path, made = signature_path(bundle), bundle.with_name(f".{bundle.name}.{os.getpid()}.oms.tmp")
    try:
        _run("sign", bundle, key, ["--signature", str(made), "--private_key", str(key)])
        os.replace(made, path)
    finally:
        remove_quietly(made)
    return f"OMS         {path.name}, signed with {key.name}"


def verify(bundle: Path, key: Path) -> str:
    """Let its own verifier check the signature with a public key, PEM; a line that says so."""
    _run("verify", bundle, key, ["--signature", str(_there(signature_path(bundle))), "--public_key", str(key)])
    return f"OMS         {signature_path(bundle).name} holds for {key.name}"


def _there(path: Path) -> Path:
    if not path.is_file():
        fix = "make it with `edgekit sign --oms KEY`" if path.name.endswith(SUFFIX) else KEY
        raise TrustError(f"{path}: no such file; {fix}")
    return path


def _run(verb: str, bundle: Path, key: Path, words: list[str]) -> None:
    command = [check_ready(key), verb, "key", str(bundle), *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise TrustError(f"{bundle}: {PROGRAM} did not answer within {LIMIT_S} s") from None
    if done.returncode != 0:
        last = "".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:])[:300]
        doing = "verify the OMS signature" if verb == "verify" else "sign"
        raise TrustError(f"{bundle}: {PROGRAM} did not {doing} ({last or f'exit code {done.returncode}'})")
