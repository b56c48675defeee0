"""The verdict of a monitor: one level, a reason in words, and the findings that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.device.monitor.comparison import ALARM, MIN_SAMPLES
from edgekit.device.monitor.finding_texts import describe_class, describe_statistic
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.monitor.reference import Reference
    from edgekit.runner.bundle.manifest import Manifest

REFUSAL_ALARM = 0.05, 8
"""Refusals are an alarm if they are more than this fraction of the last samples, and at least this many."""
LEVELS = ("early", "healthy", "warning", "wrong")


@dataclass(frozen=True)
class DriftFinding:
    """A statistic compared with the validation.

    `evidence` is −log10 of the p-value, corrected for all tests and windows; from 1 on it is an `alarm`. `here` is the
    mean of the window, `there` the middle half of the reference. For a class, both are fractions of all answers.
    """

    statistic: str
    evidence: float
    alarm: bool
    here: float | None
    there: tuple[float, float] | None
    text: str


@dataclass(frozen=True)
class Verdict:
    """A monitor's verdict.

    `level` is "wrong" if golden samples are not reproduced, else "warning" if a finding is an alarm, else "early" with
    fewer than 64 samples, else "healthy".
    """

    level: str
    reason: str
    samples: int
    findings: list[DriftFinding] = field(default_factory=list)
    canary: dict[str, Any] | None = None

    @property
    def health(self) -> int:
        """The level as a number: −1 too early to say, 0 healthy, 1 warning, 2 wrong."""
        return LEVELS.index(self.level) - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict for JSON."""
        return {**vars(self), "findings": [dict(vars(each)) for each in self.findings]}

    @classmethod
    def of(cls, manifest: Manifest, reference: Reference | Mapping[str, Any], sketch: Mapping[str, Any]) -> Verdict:
        """Derive the verdict from a sketch, which comes from `Monitor.sketch` or `Monitor.merge`.

        Raises
        ------
        InputError
            The sketch does not belong to this bundle.
        """
        from edgekit.device.monitor.reference import Reference, parse_reference
        from edgekit.device.monitor.sketch import MALFORMED_ERRORS, check_sketch

        parsed = reference if isinstance(reference, Reference) else parse_reference(reference, manifest)
        check_sketch(sketch, parsed)
        try:
            return cls._of(parsed, sketch)
        except MALFORMED_ERRORS as error:
            raise InputError(f"sketch: it was edited or cut short ({type(error).__name__}: {error})") from None

    @classmethod
    def _of(cls, reference: Reference, sketch: Mapping[str, Any]) -> Verdict:
        findings = [*_statistics(reference, sketch), *_classes(reference, sketch)]
        findings += [each for each in (_confidence(sketch), _refused(sketch)) if each is not None]
        findings.sort(key=lambda each: (-each.alarm, -each.evidence))
        samples, canary = int(sketch["samples"]), sketch.get("canary")
        alarms = [each for each in findings if each.alarm]
        if canary is not None and not canary["ok"]:
            return cls(
                "wrong", f"golden samples are not answered as recorded: {canary['reason']}", samples, findings, canary
            )
        if alarms:
            more = f"; and {len(alarms) - 1} more findings" if len(alarms) > 1 else ""
            return cls("warning", alarms[0].text + more, samples, findings, canary)
        if samples < MIN_SAMPLES:
            return cls(
                "early",
                f"{samples} samples are too few for a verdict; {MIN_SAMPLES} are needed",
                samples,
                findings,
                canary,
            )
        return cls("healthy", f"{samples:,} samples look like those of validation", samples, findings, canary)


def _statistics(reference: Reference, sketch: Mapping[str, Any]) -> list[DriftFinding]:
    findings, last = [], reference.quantiles.shape[1] - 1
    for index, name in enumerate(reference.names):
        latest = sketch["statistics"][name].get("latest")
        if latest is None:
            continue
        there = tuple(reference.quantiles[index, [last // 4, last - last // 4]].tolist())
        location, spread = latest["evidence"]
        evidence = max(location, spread)
        moved = location >= min(spread, ALARM)
        more = latest["rank"] > 0.5 if moved else latest["spread"] > 0.5
        text = describe_statistic(name, moved, bool(more), latest["mean"], there)
        findings.append(DriftFinding(name, evidence, evidence >= ALARM, latest["mean"], there, text))
    return findings


def _classes(reference: Reference, sketch: Mapping[str, Any]) -> list[DriftFinding]:
    findings = []
    for label, (here, there, evidence) in (sketch.get("classes_latest") or {}).items():
        text = describe_class(label, here, there)
        findings.append(DriftFinding(f"class:{label}", evidence, evidence >= ALARM, here, (there, there), text))
    return findings


def _confidence(sketch: Mapping[str, Any]) -> DriftFinding | None:
    """Return the finding for a change that ADWIN detected, which does not depend on the validation."""
    change = sketch.get("confidence")
    if change is None:
        return None
    text = (
        f"confidence moved from {change['before']:.3g} to {change['since']:.3g} at about sample {change['at']:,} "
        f"({change['by']})"
    )
    return DriftFinding("confidence_change", ALARM * change["alarm"], change["alarm"], change["since"], None, text)


def _refused(sketch: Mapping[str, Any]) -> DriftFinding | None:
    recent = sketch["recent"]
    if not recent["refused"]:
        return None
    share = recent["refused"] / recent["of"]
    alarm = share > REFUSAL_ALARM[0] and recent["refused"] >= REFUSAL_ALARM[1]
    text = f"{share:.0%} of the last {recent['of']} inputs got no answer, the last of them because of {recent['why']}"
    return DriftFinding("refused", ALARM * alarm, alarm, share, None, text)
