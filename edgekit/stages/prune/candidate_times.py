"""Networks that a cut would leave, timed on the first target of the budget: converted, and called in turns.

What a network of some widths takes is a fact of its shape, so it is timed before any fine-tuning. Times are kept: a
stage that was stopped goes on with those that it decided by.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from torch import nn

from edgekit.core.errors import ConversionError
from edgekit.core.hashing import write_json
from edgekit.data import Data
from edgekit.device.measure import intervals
from edgekit.device.measure.bench import machine
from edgekit.measure import latency
from edgekit.measure.latency import CONFIDENCE, Timed
from edgekit.models import store
from edgekit.stages.prune.config import Config
from edgekit.stages.prune.latency import CALIBRATION_SAMPLES
from edgekit.targets import evaluate
from edgekit.training.resume import ResumeFolder

TIMES_FILE = "cuts.json"
PRECISIONS = ("int8", "fp32")
"""The first of them that the networks can be made in: int8 is what a device is given most."""
STUDENT, NOW = "student", "now"


@dataclass(frozen=True)
class CutTime:
    """A network with `group` cut to `width`: its p50 over the student's, and over that of the network before the cut.

    The ends are those of the second ratio's interval.
    """

    group: str
    width: int
    p50_ms: float
    of_student: float
    of_before: float
    low: float
    high: float

    @property
    def is_faster(self) -> bool:
        """Whether it surely takes less than the network before the cut."""
        return self.high < 1


@dataclass(frozen=True)
class Timing:
    """All cuts of one network, timed in the same rounds; `reached` is that network's own p50 over the student's."""

    target: str
    precision: str
    reached: float
    cuts: list[CutTime]


class Clock:
    """Times networks one after the other choice; recalls what an attempt that was stopped has timed."""

    def __init__(self, spec: store.ModelSpec, data: Data, config: Config, place: ResumeFolder) -> None:
        self.spec, self.data, self.config = spec, data, config
        self._path, self._key = place.folder / TIMES_FILE, place.key
        self._recalled, self.timings = _stored(self._path, self._key), list[Timing]()

    def time(self, student: nn.Module, now: nn.Module, cuts: Mapping[tuple[str, int], nn.Module]) -> Timing:
        """The cuts, by group and width, of the network `now`; ConversionError where the target takes none of them."""
        recalled = self._recalled[len(self.timings) : len(self.timings) + 1]
        if recalled and {(one.group, one.width) for one in recalled[0].cuts} <= set(cuts):
            self.timings += recalled
        else:
            self._recalled = []
            self.timings.append(self._measured(student, now, cuts))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"key": self._key, "timings": [asdict(one) for one in self.timings]})
        return self.timings[-1]

    def evidence(self) -> dict[str, object]:
        """All that the clock said, and how it was asked."""
        config = self.config
        protocol = f"{config.rounds} rounds of {config.calls_per_round} calls, batch 1, one thread, before fine-tuning"
        return {
            "timings": [asdict(one) for one in self.timings],
            "conditions": {**machine(), "protocol": protocol, "confidence": CONFIDENCE},
        }

    def _measured(self, student: nn.Module, now: nn.Module, cuts: Mapping[tuple[str, int], nn.Module]) -> Timing:
        config, names = self.config, {f"cut{number}": cut for number, cut in enumerate(cuts)}
        known = {STUDENT: student} if _shapes(now) == _shapes(student) else {STUDENT: student, NOW: now}
        models = known | {name: cuts[cut] for name, cut in names.items()}
        raw = evaluate.spread(self.data.calibration, CALIBRATION_SAMPLES)
        inputs = evaluate.network_inputs(raw, self.spec.preprocess)
        with tempfile.TemporaryDirectory(prefix="edgekit-cuts-") as folder:
            for name, module in models.items():
                store.save(Path(folder) / name, module, self.spec)
            lost: list[latency.Lost] = []
            for precision in PRECISIONS:
                found, lost = latency.measure(
                    {name: Path(folder) / name for name in models},
                    inputs,
                    config.targets[:1],
                    (precision,),
                    rounds=config.rounds,
                    calls_per_round=config.calls_per_round,
                    timeout_s=config.timeout_s,
                )
                timed = {one.model: one for one in found}
                if set(known) <= set(timed):
                    return _timing(timed, {name: cut for name, cut in names.items() if name in timed})
        raise ConversionError(
            f"prune.structured is latency, and the student cannot be timed for {config.targets[0]}: "
            f"{lost[0].reason if lost else 'no file'}; name another target first, or set prune.structured to ratio"
        )


def _timing(timed: Mapping[str, Timed], names: Mapping[str, tuple[str, int]]) -> Timing:
    student = timed[STUDENT]
    now = timed.get(NOW, student)  # nothing is cut yet
    cuts = []
    for name, (group, width) in names.items():
        of_before = _ratio(timed[name], now)
        of_student = _ratio(timed[name], student).ratio
        ends = of_before.ratio, of_before.low, of_before.high
        cuts.append(CutTime(group, width, timed[name].p50_ms, of_student, *ends))
    return Timing(now.target, now.precision, _ratio(now, student).ratio, cuts)


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in module.state_dict().values()]


def _ratio(one: Timed, to: Timed) -> intervals.Ratio:
    rounds = len(one.round_p50s_ms)
    return intervals.ratio(np.array(one.round_p50s_ms), np.array(to.round_p50s_ms), rounds, CONFIDENCE)


def _stored(path: Path, key: str) -> list[Timing]:
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        if note["key"] != key:
            return []
        return [Timing(**{**row, "cuts": [CutTime(**cut) for cut in row["cuts"]]}) for row in note["timings"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
