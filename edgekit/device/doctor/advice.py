"""The exact commands that repair an environment, even if apt manages the system's Python (PEP 668)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgekit.device.doctor import wheels

if TYPE_CHECKING:
    from edgekit.device.hardware.facts import DeviceFacts

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+:@%")


def makes_venv(facts: DeviceFacts) -> bool:
    """Whether pip must not change this Python, so that packages have to go into a new virtual environment."""
    return facts.externally_managed and not facts.in_venv


def install_command(facts: DeviceFacts, *requirements: str) -> str:
    """Return the command that installs requirements for this Python, or into a virtual environment if necessary."""
    quoted = " ".join(shell_quote(each) for each in requirements)
    if makes_venv(facts):
        venv = "" if facts.can_make_venv or not facts.apt else "sudo apt install -y python3-venv && "
        return f"{venv}{python_command(facts)} -m venv edge && edge/bin/pip install {quoted}"
    install_pip = (
        "sudo apt install -y python3-pip"
        if facts.apt and not facts.in_venv
        else f"{python_command(facts)} -m ensurepip"
    )
    pip = "" if facts.has("pip") else f"{install_pip} && "
    return f"{pip}{python_command(facts)} -m pip install {quoted}"


def interpreter_command(facts: DeviceFacts, name: str) -> str | None:
    """Return the command that installs an interpreter with a suitable NumPy, or None if no wheel fits the device."""
    wheel = (
        wheels.newest_wheel(wheels.distribution_of(name), facts.python, facts.architecture, facts.glibc)
        if facts.glibc
        else None
    )
    if facts.system == "Linux" and wheel is None:
        return None
    numpy = numpy_for(name, wheel)
    newest = next((row for row in wheels.WHEELS if row.distribution == wheels.distribution_of(name)), None)
    pinned = (
        f"{wheels.distribution_of(name)}=={wheel.version}"
        if wheel and wheel != newest
        else wheels.distribution_of(name)
    )
    return install_command(facts, numpy, pinned)


def other_python_command(facts: DeviceFacts, name: str, minor: int) -> str:
    """Return the command that installs Python 3.`minor` with an interpreter that has wheels for it."""
    python = "edge/bin/python" if makes_venv(facts) else python_command(facts)
    create_venv = f"{python} -m uv venv -p 3.{minor} edge3{minor}"
    requirements = " ".join(shell_quote(each) for each in (numpy_for(name), wheels.distribution_of(name)))
    return (
        f"{install_command(facts, 'uv')} && {create_venv} && {python} -m uv pip install -p edge3{minor} {requirements}"
    )


def numpy_for(name: str, wheel: wheels.Wheel | None = None) -> str:
    """Return the NumPy requirement that an interpreter needs."""
    from edgekit.device.hardware.facts import version_numbers

    since = wheels.NUMPY_2_FROM.get(wheels.distribution_of(name), ())
    return (
        "numpy<2"
        if since and (since[0] == wheels.NEVER or (wheel and version_numbers(wheel.version) < since))
        else "numpy"
    )


def first_install_command(facts: DeviceFacts, names: list[str]) -> str | None:
    """Return the command for the first of these interpreters that has a wheel for the device."""
    return next((line for name in names if (line := interpreter_command(facts, name))), None)


def python_command(facts: DeviceFacts) -> str:
    """Return the command that starts this Python: `python3` if the PATH leads to this Python, else its full path."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidate = os.path.join(folder, "python3")
        if folder and os.path.exists(candidate):
            return (
                "python3"
                if os.path.abspath(candidate) == os.path.abspath(facts.executable)
                else shell_quote(facts.executable)
            )
    return shell_quote(facts.executable)


def shell_quote(word: str) -> str:
    """Quote a word for a shell."""
    return word if word and set(word) <= SAFE else "'" + word.replace("'", "'\"'\"'") + "'"
