"""Measuring: one round of a batch's files beside the anchors, alone on its lane, and what it found for good.

What is told of a file is how many times slower it is than the baseline's float file in the same round, times that
file's p50 in the study's first round. So an hour that is slower as a whole changes nothing. A value belongs to the
bytes that were measured: `measured.json` has it by target and digest. A file that is there is never measured again, and
a study that replays another takes its values from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import progress
from edgekit.core.budget import RelativeLatency
from edgekit.core.errors import ConfigError, TrustError
from edgekit.core.hashing import write_json
from edgekit.core.schema.study import AnchorRow
from edgekit.device.measure import bench, conditions, intervals
from edgekit.device.measure.execution import timed_call
from edgekit.measure.references import RivalFile
from edgekit.runner.backends import open_backend
from edgekit.runner.native_stderr import quiet_native
from edgekit.search.files import Content
from edgekit.workbook.workers import Job, Pool

FILE, FORMAT = "measured.json", 2
TRIES = 3
"""Rounds at most, where each is disturbed; of these the one that was least so counts."""
DRIFT = 0.10
"""By how much the ratio of a file of the front may leave its earlier interval; beyond, the round compares nothing."""
BASELINE = "baseline"


@dataclass(frozen=True)
class Protocol:
    """How a round is timed, as `bench.growing`: options of the config's benchmark, and the sample's path."""

    input: str
    rounds: int
    calls_per_round: int
    warmup_per_round: int
    confidence: float
    limit_s: float
    threads: int = 1


@dataclass(frozen=True)
class Latency:
    """How many times slower than the anchor a file is, with its interval, and the anchor's first p50.

    `beside` has the same of rivals, by sha256.
    """

    ratio: float
    low: float
    high: float
    anchor_ms: float
    beside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def p50_ms(self) -> float:
        """What is told."""
        return self.ratio * self.anchor_ms

    @property
    def interval_ms(self) -> list[float]:
        """Both ends."""
        return [self.low * self.anchor_ms, self.high * self.anchor_ms]

    def ratio_low(self, limit: RelativeLatency) -> float:
        """Lower end of the ratio to the reference of a limit; the baseline's is the anchor."""
        return self.low if limit.sha256 is None else self.beside[limit.sha256]["low"]


class Measured:
    """Everything that a study has measured; `replay` is the folder of another study whose values are taken first.

    `beside` are the sha256 of rivals: what was not measured beside each of them is not known.
    """

    def __init__(self, folder: Path, replay: Path | None = None, beside: Sequence[str] = ()) -> None:
        self._path, self.replay, self._beside = folder / FILE, replay, frozenset(beside)
        self._own = _read(self._path) if self._path.is_file() else _nothing()
        self._other = _read(replay / FILE) if replay else _nothing()

    def anchors(self) -> list[AnchorRow]:
        """The baseline's file on each target, and its first p50."""
        rows = sorted(self._own["anchors"].items())
        return [{"name": BASELINE, "target": target, "p50_ms": p50_ms} for target, p50_ms in rows]

    def of(self, content: Content) -> Latency | None:
        """What is known of a file."""
        found = self._own["files"].get(content.key)
        return Latency(**found, anchor_ms=self._own["anchors"][content.target]) if found else None

    def check_anchors(self, anchors: Mapping[str, Content]) -> None:
        """Ratios to another file say nothing here: ConfigError of a replayed study, TrustError of this one."""
        for target, anchor in anchors.items():
            if self._other["baselines"].get(target, anchor.sha256) != anchor.sha256:
                raise ConfigError(
                    f"--replay {self.replay}: measured beside another baseline for {target}; leave it out, or replay "
                    "a study of this config"
                )
            if self._own["baselines"].get(target, anchor.sha256) != anchor.sha256:
                raise TrustError(
                    f"{self._path}: measured beside another baseline for {target}, which is made anew with other "
                    "bytes; search in another folder"
                )

    def adopt(self, contents: Iterable[Content]) -> list[Content]:
        """Take what the other study knows of these files; those that neither knows, each once."""
        unknown, before = dict[str, Content](), json.dumps(self._own)
        for content in contents:
            theirs = self._other["files"].get(content.key)
            if self._is_known(theirs) and content.target in self._other["anchors"]:
                for each in ("anchors", "baselines"):
                    if content.target in self._other[each]:
                        self._own[each].setdefault(content.target, self._other[each][content.target])
                if not self._is_known(self._own["files"].get(content.key)):
                    self._own["files"][content.key] = theirs
            if not self._is_known(self._own["files"].get(content.key)):
                unknown[content.key] = content
        if json.dumps(self._own) != before:
            write_json(self._path, self._own)
        return list(unknown.values())

    def keep(self, found: Mapping[str, Any], contents: Iterable[Content], anchors: Mapping[str, Content]) -> None:
        """Write down what a round found of these files beside the anchors."""
        for target, p50_ms in found["anchors"].items():
            first = self._other["anchors"].get(target, p50_ms)
            self._own["anchors"].setdefault(target, first)
            self._own["baselines"].setdefault(target, anchors[target].sha256)
        for content in contents:
            if not self._is_known(self._own["files"].get(content.key)):
                self._own["files"][content.key] = found["ratios"][content.key]
        write_json(self._path, self._own)

    def _is_known(self, row: Mapping[str, Any] | None) -> bool:
        return row is not None and self._beside <= set(row.get("beside", ()))

    def drifted(self, found: Mapping[str, Any]) -> list[str]:
        """Reasons not to trust a round: files known before that it sees otherwise."""
        reasons = []
        for key, now in found["ratios"].items():
            before = self._own["files"].get(key)
            if before and not before["low"] / (1 + DRIFT) <= now["ratio"] <= before["high"] * (1 + DRIFT):
                reasons.append(f"a file of the front takes {now['ratio']:.3g} times as long as the baseline's, and "
                               f"took {before['ratio']:.3g}")  # fmt: skip
        return reasons


def check_replay(folder: Path) -> None:
    """ConfigError where a folder is no study that can be replayed."""
    if not (folder / FILE).is_file():
        raise ConfigError(
            f"--replay {folder}: no study there, for it has no {FILE}; name the folder of a finished search, "
            "such as artifacts/digits-search"
        )
    _read(folder / FILE)


def measure(
    contents: Iterable[Content],
    anchors: Mapping[str, Content],
    front: Sequence[Content],
    measured: Measured,
    protocol: Protocol,
    pool: Pool,
    say: Callable[[str], object] = progress.say,
    beside: Mapping[str, Any] | None = None,
) -> list[str]:
    """Measure what is not known yet in one round beside the anchors; why it was disturbed, nothing of a quiet one.

    `beside` are rivals, as `anchors.Anchors` has them, which are timed in the same round.
    A disturbed round is repeated, `TRIES` in all. Files that a replayed study lacks are measured, and that is said.
    """
    measured.check_anchors(anchors)
    unknown = measured.adopt(contents)
    if not unknown:
        return []
    if measured.replay:
        many = f"{len(unknown)} file was" if len(unknown) == 1 else f"{len(unknown)} files were"
        say(f"--replay {measured.replay}: {many} not measured there, so measuring begins; the digest will be another.")
    targets = {content.target for content in unknown}
    known = {content.key: content for content in front if content.target in targets}
    arguments = {
        "contents": [content.to_json() for content in {**known, **{each.key: each for each in unknown}}.values()],
        "anchors": {target: anchors[target].to_json() for target in sorted(targets)},
        "protocol": vars(protocol),
        **({"beside": dict(beside)} if beside else {}),
    }
    work = Job(f"measuring {len(unknown)} files", "edgekit.search.measurement:time_files", arguments, "measure")
    rounds: list[tuple[list[str], Any]] = []
    for number in range(1, TRIES + 1):
        found = pool.run([work])[0]
        reasons = [*found["disturbed"], *measured.drifted(found)]
        rounds.append((reasons, found))
        if not reasons:
            break
        again = f"; it is measured again ({number + 1} of {TRIES})" if number < TRIES else "; it counts, and is marked"
        say(f"The round was disturbed: {'; '.join(reasons)}{again}.")
    reasons, found = min(rounds, key=lambda each: len(each[0]))
    measured.keep(found, unknown, anchors)
    return reasons


def time_files(
    contents: list[dict[str, Any]],
    anchors: dict[str, Any],
    protocol: dict[str, Any],
    beside: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Time files, anchors and rivals in turn; {"ratios": by key, "anchors": p50 by target, "disturbed": reasons}."""
    how = Protocol(**protocol)
    files = [Content.from_json(each) for each in contents]
    by_target = {target: Content.from_json(each) for target, each in anchors.items()}
    x = np.load(how.input, allow_pickle=False)
    every = {content.key: content for content in [*by_target.values(), *files]}
    openers: dict[str, Callable[[], Callable[[], object]]] = {
        key: partial(_open, content, x, how.threads) for key, content in every.items()
    }
    rivals = {sha256: RivalFile(**each) for sha256, each in beside["files"].items()} if beside else {}
    raw = np.load(beside["raw"], allow_pickle=False) if beside else x
    openers |= {sha256: partial(rival.call, raw, how.threads) for sha256, rival in rivals.items()}
    with (
        conditions.ConditionsRecorder() as watch,
        progress.step("measuring the trials", "opening", bench.opening_count(how.rounds)) as shown,
    ):
        on_round = progress.both(watch.sample, shown.at)
        growing = bench.timed_openings(openers, how.rounds, how.rounds, how.calls_per_round, how.warmup_per_round,
                                on_round=on_round, limit_s=how.limit_s)  # fmt: skip
        samples_ms, openings = next(growing)
    p50 = {
        target: intervals.p50_interval(samples_ms[each.key], openings, how.confidence)
        for target, each in by_target.items()
    }

    def ratio(key: str, to: str) -> dict[str, float]:
        return asdict(intervals.ratio_interval(samples_ms[key], samples_ms[to], openings, how.confidence))

    ratios: dict[str, dict[str, Any]] = {each.key: ratio(each.key, by_target[each.target].key) for each in files}
    if rivals:
        for key, found in ratios.items():
            found["beside"] = {sha256: ratio(key, sha256) for sha256 in rivals}
    noise = float(np.median([conditions.noise(each, openings) for each in samples_ms.values()]))
    return {
        "ratios": ratios,
        "anchors": {target: median.p50_ms for target, median in p50.items()},
        "disturbed": conditions.noise_reasons(watch.result(noise)),
    }


def _open(content: Content, x: np.ndarray, threads: int) -> Callable[[], object]:
    bytes_by_name = {Path(path).name: Path(path).read_bytes() for path in content.paths}
    with quiet_native():
        backend = open_backend(content.target, bytes_by_name, content.inputs, content.outputs, threads)
    nhwc = content.inputs[0].layout == "NHWC"
    inputs = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if nhwc else x
    return timed_call(backend, inputs)


def _nothing() -> dict[str, Any]:
    return {"format": FORMAT, "anchors": {}, "baselines": {}, "files": {}}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        good = (
            found["format"] == FORMAT
            and all(isinstance(each, str) for each in found.setdefault("baselines", {}).values())
            and all(map(_is_positive, found["anchors"].values()))
            and all(map(_is_row, found["files"].values()))
            and {key.partition(":")[0] for key in found["files"]} <= found["anchors"].keys()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise TrustError(f"{path}: not what a search of this edgekit measured; remove it, or name another folder")
    return dict(found)


def _is_row(row: dict[str, Any]) -> bool:
    rows = [{name: value for name, value in row.items() if name != "beside"}, *row.get("beside", {}).values()]
    return all({"ratio", "low", "high"} == set(each) and all(map(_is_positive, each.values())) for each in rows)


def _is_positive(value: object) -> bool:
    return isinstance(value, float) and 0 < value < float("inf")
