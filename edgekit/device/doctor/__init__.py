"""Find what would go wrong on this device, before anything is imported that could crash.

A check is a small function that takes a `DoctorCase` and yields findings. A finding is one line about the cause and one
line with the fix. To add a check, write a function and list it in the tuple `CHECKS` at the end of its module.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from edgekit.device.doctor import wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgekit.device.doctor.bundle_requirements import BundleRequirements
    from edgekit.device.hardware.facts import DeviceFacts
    from edgekit.device.trust.ssh_keygen import VerifierFault

FAMILIES = ("packages", "platforms", "model", "accelerators", "state")
ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class DoctorFinding:
    """A problem that keeps a bundle from running ("error"), or has a lesser cost such as lower speed ("warning").

    `interpreter` is set if the problem concerns this interpreter only.
    """

    code: str
    severity: str
    cause: str
    fix: str
    interpreter: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class DoctorCase:
    """What is examined: the device, the bundle that it should run, and the options of the command.

    `input` is the name of a file that should be readable as a sample. `verifier` is a problem with ssh-keygen, which
    verifies signatures.
    """

    facts: DeviceFacts
    subject: BundleRequirements | None = None
    interpreter: str | None = None
    device: str | None = None
    input: str | None = None
    verifier: VerifierFault | None = None

    @property
    def target(self) -> str | None:
        """The bundle's target."""
        return self.subject.target if self.subject else None

    @property
    def interpreters(self) -> list[str]:
        """Interpreters that could be used, the recommended one first. Only OpenVINO supports GPUs and NPUs."""
        names = wheels.interpreters_for(self.target) if self.target else list(wheels.PREFERENCE)
        requested = self.interpreter or ("openvino" if self.device in ("GPU", "NPU") else None)
        return [name for name in names if requested in (None, name)]

    @property
    def installed(self) -> list[str]:
        """Those of `interpreters` that pip has installed."""
        return [name for name in self.interpreters if self.facts.has(wheels.distribution_of(name))]


def examine(case: DoctorCase) -> list[DoctorFinding]:
    """Return all findings, errors first.

    A problem that concerns one interpreter is only a warning if another installed interpreter has no error.
    """
    findings = [finding for check in checks() for finding in check(case)]
    failing = {finding.interpreter for finding in findings if finding.severity == ERROR and finding.interpreter}
    if set(case.installed) - failing:
        findings = [replace(each, severity=WARNING) if each.interpreter else each for each in findings]
    return sorted(findings, key=lambda finding: finding.severity != ERROR)


def checks() -> list[Callable[[DoctorCase], Iterator[DoctorFinding]]]:
    """Return all checks."""
    modules = [importlib.import_module(f"{__name__}.{family}") for family in FAMILIES]
    return [check for module in modules for check in module.CHECKS]


def blocks(findings: list[DoctorFinding]) -> bool:
    """Whether any finding keeps the model from running."""
    return any(finding.severity == ERROR for finding in findings)
