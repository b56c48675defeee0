"""What would go wrong on this device, found before anything is imported that could crash.

Checks are small functions from a `Case` to findings, listed in one tuple at the end of each file here. To add a check,
add a function. A finding is one line of cause and one line of fix.
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
    """Something that blocks ("error") or costs ("warning"). `interpreter`: it concerns that one alone."""

    code: str
    severity: str
    cause: str
    fix: str
    interpreter: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class DoctorCase:
    """What is examined: the device, and what is wanted of it. `verifier` is what is wrong with ssh-keygen."""

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
        """Interpreters that come into question, the advised one first; no other than OpenVINO has a GPU or an NPU."""
        known = wheels.interpreters_for(self.target) if self.target else list(wheels.PREFERENCE)
        wanted = self.interpreter or ("openvino" if self.device in ("GPU", "NPU") else None)
        return [name for name in known if wanted in (None, name)]

    @property
    def installed(self) -> list[str]:
        """Those of `interpreters` that pip has installed."""
        return [name for name in self.interpreters if self.facts.has(wheels.distribution_of(name))]


def examine(case: DoctorCase) -> list[DoctorFinding]:
    """Every finding, errors first. What ails one interpreter only warns where another can do the work."""
    found = [finding for check in checks() for finding in check(case)]
    ailing = {finding.interpreter for finding in found if finding.severity == ERROR and finding.interpreter}
    if set(case.installed) - ailing:
        found = [replace(each, severity=WARNING) if each.interpreter else each for each in found]
    return sorted(found, key=lambda finding: finding.severity != ERROR)


def checks() -> list[Callable[[DoctorCase], Iterator[DoctorFinding]]]:
    """Every check of every family."""
    modules = [importlib.import_module(f"{__name__}.{family}") for family in FAMILIES]
    return [check for module in modules for check in module.CHECKS]


def blocks(findings: list[DoctorFinding]) -> bool:
    """Whether any of them keeps the model from running."""
    return any(finding.severity == ERROR for finding in findings)
