"""The exact line that repairs an environment, also where the system's Python belongs to apt (PEP 668)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgekit.device.doctor import wheels

if TYPE_CHECKING:
    from edgekit.device.hardware.facts import DeviceFacts

SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+:@%")


def makes_venv(facts: DeviceFacts) -> bool:
    """Whether pip must not touch this Python, so that packages go into a new virtual environment."""
    return facts.externally_managed and not facts.in_venv


def install_command(facts: DeviceFacts, *requirements: str) -> str:
    """The command that installs requirements for this Python, or into a virtual environment where it must."""
    wanted = " ".join(shell_quote(each) for each in requirements)
    if makes_venv(facts):
        venv = "" if facts.can_make_venv or not facts.apt else "sudo apt install -y python3-venv && "
        return f"{venv}{python_command(facts)} -m venv edge && edge/bin/pip install {wanted}"
    lacking = (
        "sudo apt install -y python3-pip"
        if facts.apt and not facts.in_venv
        else f"{python_command(facts)} -m ensurepip"
    )
    pip = "" if facts.has("pip") else f"{lacking} && "
    return f"{pip}{python_command(facts)} -m pip install {wanted}"


def interpreter_command(facts: DeviceFacts, name: str) -> str | None:
    """The command that installs an interpreter with the numpy it needs; None where it has no wheel for the device."""
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
    """The command that fetches another Python, 3.`minor`, with an interpreter that has wheels for it."""
    mine = "edge/bin/python" if makes_venv(facts) else python_command(facts)
    fetched = f"{mine} -m uv venv -p 3.{minor} edge3{minor}"
    wanted = " ".join(shell_quote(each) for each in (numpy_for(name), wheels.distribution_of(name)))
    return f"{install_command(facts, 'uv')} && {fetched} && {mine} -m uv pip install -p edge3{minor} {wanted}"


def numpy_for(name: str, wheel: wheels.Wheel | None = None) -> str:
    """The requirement on numpy that goes with an interpreter."""
    from edgekit.device.hardware.facts import version_numbers

    since = wheels.NUMPY_2_FROM.get(wheels.distribution_of(name), ())
    return (
        "numpy<2"
        if since and (since[0] == wheels.NEVER or (wheel and version_numbers(wheel.version) < since))
        else "numpy"
    )


def first_install_command(facts: DeviceFacts, names: list[str]) -> str | None:
    """The command for the first of these interpreters that has a wheel for the device."""
    return next((line for name in names if (line := interpreter_command(facts, name))), None)


def python_command(facts: DeviceFacts) -> str:
    """How this Python is called on a command line: `python3` where that is the one the path finds."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = os.path.join(folder, "python3")
        if folder and os.path.exists(found):
            return (
                "python3"
                if os.path.abspath(found) == os.path.abspath(facts.executable)
                else shell_quote(facts.executable)
            )
    return shell_quote(facts.executable)


def shell_quote(word: str) -> str:
    """A word as a shell takes it."""
    return word if word and set(word) <= SAFE else "'" + word.replace("'", "'\"'\"'") + "'"
