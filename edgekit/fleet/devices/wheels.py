"""Choose the wheels in a folder that a device needs, for its Python, processor and C library."""

from __future__ import annotations

import email
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from edgekit.core.errors import ConfigError
from edgekit.device.doctor import wheels as known
from edgekit.fleet.devices.device_errors import DeviceError
from edgekit.fleet.devices.facts import HelloFacts
from edgekit.runner import cpu

OLDEST_GLIBC = 5
LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
NARROW = {"aarch64": "armv7l", "x86_64": "i686"}
"""Architecture of a 32-bit Python on a 64-bit kernel."""
OLDEST_NUMPY = ">=1.22"
NO_INTERPRETER = 5


@dataclass(frozen=True)
class Wheel:
    """A wheel file of a folder."""

    path: Path
    name: str
    version: Version
    tags: frozenset[Tag]

    def requirements(self) -> list[Requirement]:
        """Return the distributions that the wheel requires."""
        with zipfile.ZipFile(self.path) as archive:
            member = next((name for name in archive.namelist() if name.endswith(".dist-info/METADATA")), None)
            if member is None:
                raise ConfigError(f"{self.path}: has no METADATA; download it again")
            message = email.message_from_bytes(archive.read(member))
        return [Requirement(text) for text in message.get_all("Requires-Dist", [])]


def read_folder(folder: Path) -> list[Wheel]:
    """Return all wheels in a folder. Raises ConfigError if there is no such folder, or no wheel in it."""
    if not folder.is_dir():
        raise ConfigError(f"--wheels {folder}: no such folder; `pip download` fills one")
    wheels = []
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
        except (InvalidWheelFilename, InvalidVersion):
            raise ConfigError(f"{path}: not the name of a wheel; download it again") from None
        wheels.append(Wheel(path, name, version, tags))
    if not wheels:
        raise ConfigError(f"--wheels {folder}: holds no wheel; `pip download` gets some")
    return wheels


def missing_distributions(facts: HelloFacts, target: str) -> list[str]:
    """Return the distributions that a bundle of this target lacks on a device: numpy, an interpreter, both or none."""
    installed = {canonicalize_name(name) for name in facts.distributions}
    interpreters = [known.distribution_of(name) for name in known.interpreters_for(target)]
    missing = [] if "numpy" in installed else ["numpy"]
    return missing if any(name in installed for name in interpreters) else [*missing, interpreters[0]]


def choose_wheels(available_wheels: list[Wheel], facts: HelloFacts, target: str) -> list[Wheel]:
    """Return the wheels to send so that a bundle of this target runs. Raises DeviceError if the folder lacks one."""
    missing = missing_distributions(facts, target)
    fitting = [wheel for wheel in available_wheels if wheel.tags & supported_tags(facts)]
    requirements = [Requirement(f"numpy{OLDEST_NUMPY}")] if "numpy" in missing else []
    if missing and missing != ["numpy"]:
        names = [known.distribution_of(name) for name in known.interpreters_for(target)]
        available = {wheel.name for wheel in fitting}
        requirements.insert(0, Requirement(next((name for name in names if name in available), names[0])))
    return list(_resolved(requirements, fitting, facts).values())


def _resolved(requirements: list[Requirement], wheels: list[Wheel], facts: HelloFacts) -> dict[str, Wheel]:
    """Return the newest wheel of each distribution that meets all requirements.

    If the device has a distribution in a version that meets the requirements, no wheel is returned for it.
    """
    specifiers: dict[str, SpecifierSet] = {}
    selected: dict[str, Wheel] = {}
    environment = _environment(facts)
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop(0)
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        name = canonicalize_name(requirement.name)
        specifiers[name] = (
            specifiers.get(name, SpecifierSet()) & requirement.specifier & _minimum_version(requirement.name)
        )
        if name in selected and selected[name].version in specifiers[name]:
            continue
        if name not in selected and _is_there(name, specifiers[name], facts):
            continue
        candidates = [wheel for wheel in wheels if wheel.name == name and wheel.version in specifiers[name]]
        if not candidates:
            raise DeviceError(_lacking(name, specifiers[name], facts), NO_INTERPRETER)
        selected[name] = max(candidates, key=lambda wheel: wheel.version)
        try:
            waiting += selected[name].requirements()
        except (InvalidRequirement, zipfile.BadZipFile) as error:
            raise ConfigError(f"{selected[name].path}: cannot be read ({error}); download it again") from None
        if known.NUMPY_2_FROM.get(name, ()) > selected[name].version.release:
            waiting.append(Requirement("numpy<2"))
    return selected


def _minimum_version(name: str) -> SpecifierSet:
    return SpecifierSet(OLDEST_NUMPY if canonicalize_name(name) == "numpy" else "")


def _is_there(name: str, specifier: SpecifierSet, facts: HelloFacts) -> bool:
    for installed, version in facts.distributions.items():
        if canonicalize_name(installed) == name:
            try:
                return specifier.contains(Version(version), prereleases=True)
            except InvalidVersion:
                return False
    return False


def supported_tags(facts: HelloFacts) -> frozenset[Tag]:
    """Return every wheel tag that the device's Python supports."""
    python, platforms = facts.python[:2], list(_platforms(facts))
    if facts.implementation != "CPython":
        return frozenset()
    interpreter = f"cp{python[0]}{python[1]}"
    return frozenset(
        [*cpython_tags(python, platforms=platforms), *compatible_tags(python, interpreter, platforms=platforms)]
    )


def wheel_architecture(facts: HelloFacts) -> str:
    """Return the processor's name in wheels."""
    name = cpu.ARCHITECTURE_ALIASES.get(facts.machine, facts.machine)
    return NARROW.get(name, name) if facts.bits == 32 else name


def _platforms(facts: HelloFacts) -> Iterator[str]:
    """Yield platforms, the newest first: those of PEP 600, and the three older names."""
    architecture = wheel_architecture(facts)
    kind, _, version = facts.libc.partition(" ")
    numbers = version.split(".")
    if kind == "glibc" and len(numbers) > 1 and numbers[0] == "2" and numbers[1].isdecimal():
        for minor in range(min(int(numbers[1]), 200), OLDEST_GLIBC - 1, -1):
            yield f"manylinux_2_{minor}_{architecture}"
            if minor in LEGACY:
                yield f"{LEGACY[minor]}_{architecture}"
    elif kind == "musl":
        yield from (f"musllinux_1_{minor}_{architecture}" for minor in (2, 1, 0))
    yield f"linux_{architecture}"


def _environment(facts: HelloFacts) -> Mapping[str, str]:
    """Return the environment in which markers of requirements are evaluated. Extras are never requested."""
    return {
        **{key: str(value) for key, value in default_environment().items()},
        "python_version": ".".join(map(str, facts.python[:2])),
        "python_full_version": facts.dotted,
        "implementation_name": facts.implementation.lower(),
        "platform_python_implementation": facts.implementation,
        "platform_machine": facts.machine,
        "platform_system": facts.system,
        "sys_platform": facts.system.lower(),
        "os_name": "posix",
        "extra": "",
    }


def _lacking(name: str, specifier: SpecifierSet, facts: HelloFacts) -> str:
    version = "".join(map(str, facts.python[:2]))
    python = f"CPython {'.'.join(map(str, facts.python[:2]))} on {wheel_architecture(facts)}"
    return (
        f"needs a wheel of {name}{specifier} for {python} "
        f"({facts.libc or 'no known C library'}), and the folder has none; fetch it with `pip download "
        f"--only-binary :all: --python-version {version} --platform {_platform(facts)} -d DIR {name}`"
    )


def _platform(facts: HelloFacts) -> str:
    return next(iter(_platforms(facts)))
