"""hosts.yaml: the devices of a fleet, their classes, and how to reach each."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core import yaml_file
from edgekit.core.config import shortened_repr, suggest
from edgekit.core.errors import ConfigError, with_article
from edgekit.fleet.devices import shell_text

PORT = 22
SECTIONS = ("defaults", "hosts")
KEYS = ("class", "host", "user", "port", "python", "home")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]{0,250}")
WORD = re.compile(r"[^\s-]\S{0,250}")
PATH = re.compile(r"(~|/|~/)?[^\x00-\x1f\x7f~-][^\x00-\x1f\x7f]{0,250}")
ADVICE = {
    "class": "letters, digits, '.', '_' and '-'",
    "host": "a host name, or an address",
    "user": "a name without spaces",
    "port": "a whole number from 1 to 65535",
    "python": "a program, such as python3 or /usr/bin/python3.11",
    "home": "a path that begins with / or ~/, to a folder of its own",
}
LIMITS = yaml_file.FileLimits("an inventory", 20_000_000, 500_000, "write fewer devices into a file")


@dataclass(frozen=True)
class Host:
    """A device. If `user` or `port` is None, ~/.ssh/config decides; if `home` is None, `edgerun` on the device does."""

    name: str
    device_class: str = "device"
    host: str = ""
    user: str | None = None
    port: int | None = None
    python: str = "python3"
    home: str | None = None

    @property
    def address(self) -> str:
        """The address as messages show it, for example `pi@10.0.0.5:22`."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}{f':{self.port}' if self.port else ''}"

    @property
    def ssh_words(self) -> str:
        """The arguments of `ssh` in a shell, for example `-p 2222 pi@10.0.0.5`."""
        place = shlex.quote(f"{f'{self.user}@' if self.user else ''}{self.host}")
        return f"{f'-p {self.port} ' if self.port else ''}{place}"

    @property
    def identity(self) -> str:
        """The address and the home, as the file names them."""
        return f"{self.address} {self.home or ''}".strip()

    @property
    def place(self) -> tuple[str, str, int, str]:
        """The device and the home on it. Hosts with the same place are the same device, listed twice."""
        return self.host.lower(), self.user or "", self.port or PORT, posixpath.normpath(self.home or "")


@dataclass(frozen=True)
class Inventory:
    """The hosts of a file, in its order."""

    path: Path
    hosts: tuple[Host, ...]

    def of_class(self, name: str) -> tuple[Host, ...]:
        """Return the hosts of a class."""
        return tuple(host for host in self.hosts if host.device_class == name)

    def chosen(self, names: tuple[str, ...], device_class: str | None = None) -> tuple[Host, ...]:
        """Return the hosts with these names (by default all) that are of the class.

        Raises ConfigError if none is left.
        """
        host_names = [host.name for host in self.hosts]
        for name in names:
            if name not in host_names:
                raise ConfigError(f"--only {name}: no such host in {self.path}, {suggest(name, host_names)}")
        classes = sorted({host.device_class for host in self.hosts})
        if device_class is not None and device_class not in classes:
            raise ConfigError(
                f"--class {device_class}: no host of {self.path} has it, {suggest(device_class, classes)}"
            )
        selected = tuple(host for host in self.hosts if not names or host.name in names)
        selected = tuple(host for host in selected if device_class in (None, host.device_class))
        if not selected:
            raise ConfigError(f"{self.path}: no host matches both --only and --class")
        return selected


def read_inventory(path: Path) -> Inventory:
    """Read the inventory in a file. Raises ConfigError with a line for each mistake."""
    values = yaml_file.read(path, LIMITS)
    faults = [
        f"{path}: {_printable_key(key)}: unknown key, {suggest(str(key), SECTIONS)}"
        for key in values
        if key not in SECTIONS
    ]
    defaults = _section(path, values, "defaults", faults)
    entries = _section(path, values, "hosts", faults)
    faults += _faults(f"{path}: defaults", defaults)
    if "host" in defaults:
        faults.append(f"{path}: defaults.host: each device has its own; name it below hosts")
    hosts = []
    for name, settings in entries.items():
        label = f"{path}: hosts.{_printable_key(name)}"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            faults.append(f"{label}: not a name; use letters, digits, '.', '_' and '-', and quote a number")
        elif settings is not None and not isinstance(settings, dict):
            faults.append(f"{label}: holds {with_article(type(settings).__name__)}; write {{class: pi4}}, or {{}}")
        else:
            faults += _faults(label, settings or {})
            hosts.append((name, {**defaults, **(settings or {})}))
    if not entries and not faults:
        faults.append(f"{path}: hosts: names no device; write `door-1: {{class: pi4, host: 10.0.0.5}}` below it")
    if faults:
        raise ConfigError("\n".join(faults))
    parsed = tuple(_host(name, facts) for name, facts in hosts)
    _check_different(path, parsed)
    return Inventory(path, parsed)


def _section(path: Path, values: Mapping[str, Any], key: str, faults: list[str]) -> dict[Any, Any]:
    section = values.get(key)
    if section is not None and not isinstance(section, dict):
        faults.append(f"{path}: {key}: holds {with_article(type(section).__name__)}, not a mapping of names to values")
        return {}
    return section or {}


def _faults(where: str, facts: Mapping[Any, Any]) -> list[str]:
    """Return a line for each unknown key and each invalid value."""
    faults = [
        f"{where}.{_printable_key(key)}: unknown key, {suggest(str(key), KEYS)}" for key in facts if key not in KEYS
    ]
    for key, value in facts.items():
        if key in KEYS and not _fits(key, value):
            faults.append(f"{where}.{key}: got {shortened_repr(value)}; use {ADVICE[key]}")
    return faults


def _printable_key(key: Any) -> str:
    """Return a key without control characters, for messages."""
    return shell_text.printable(key, 60)


def _fits(key: str, value: Any) -> bool:
    if key == "port":
        return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535
    if not isinstance(value, str) or shell_text.UNPRINTABLE.search(value):
        return False
    if key == "home":
        normal = posixpath.normpath(value)
        return bool(PATH.fullmatch(value)) and normal.startswith(("/", "~/")) and normal not in ("/", "//")
    return bool({"class": NAME, "host": HOST, "python": PATH}.get(key, WORD).fullmatch(value))


def _host(name: str, facts: Mapping[str, Any]) -> Host:
    device_class = facts.get("class", Host.device_class)
    settings = {key: facts[key] for key in KEYS if key in facts and key not in ("class", "host")}
    return Host(name=name, device_class=device_class, host=facts.get("host", name), **settings)


def _check_different(path: Path, hosts: tuple[Host, ...]) -> None:
    """Raise ConfigError if two names mean the same device, because two connections would then write to it at once."""
    seen: dict[tuple[str, str, int, str], str] = {}
    for host in hosts:
        first = seen.setdefault(host.place, host.name)
        if first != host.name:
            raise ConfigError(
                f"{path}: hosts.{host.name}: is the same device as {first} ({host.address}); leave one of them out"
            )
