"""Time the files of a batch together with the baseline's files, and store the results for good.

In this module, a round is one complete measurement, in which each file is opened and timed many times. A file and the
baseline's float file for the same target are timed in the same round, and their ratio is computed. The reported latency
is this ratio times the p50 that the baseline's file had in the first round of the study. So the result is the same even
if the whole machine is slower for a while.

`measured.json` stores the results by target and by the digest of the file's content. A file that has been measured is
never measured again, and a study that replays another one reuses its measurements.
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
from edgekit.core.budget import RelativeLatencyLimit
from edgekit.core.errors import ConfigError, TrustError
from edgekit.core.execution import timed_call
from edgekit.core.hashing import write_json
from edgekit.core.schema.study import AnchorRow
from edgekit.device.measure import bench, conditions, intervals
from edgekit.measure.references import ReferenceFile
from edgekit.runner.backends import open_backend
from edgekit.runner.native_stderr import quiet_native
from edgekit.search.model_files import ModelFiles
from edgekit.workbook.workers import Job, Pool

FILE, FORMAT = "measured.json", 2
MAX_ROUNDS = 3
"""The largest number of rounds that are tried until one is not noisy. If all are noisy, the least noisy one is used."""
DRIFT_TOLERANCE = 0.10
"""A round counts as noisy if the ratio of a file on the front is outside its earlier interval by this fraction."""
BASELINE = "baseline"


@dataclass(frozen=True)
class TimingProtocol:
    """How a round is timed: options of the config's section `benchmark`, and `input`, the path of the sample."""

    input: str
    rounds: int
    calls_per_round: int
    warmup_per_round: int
    confidence: float
    limit_s: float
    threads: int = 1


@dataclass(frozen=True)
class MeasuredLatency:
    """The ratio of a file's latency to the baseline's, with its interval. `anchor_ms` is the baseline's first p50.

    `beside` has the ratios to the reference models with their intervals, by the sha256 of the model.
    """

    ratio: float
    low: float
    high: float
    anchor_ms: float
    beside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def p50_ms(self) -> float:
        """The reported latency."""
        return self.ratio * self.anchor_ms

    @property
    def interval_ms(self) -> list[float]:
        """The lower and the upper bound of the reported latency."""
        return [self.low * self.anchor_ms, self.high * self.anchor_ms]

    def ratio_low(self, limit: RelativeLatencyLimit) -> float:
        """The lower bound of the ratio to the model that a limit refers to."""
        return self.low if limit.sha256 is None else self.beside[limit.sha256]["low"]


class Measurements:
    """All measurements of a study. `replay` is the folder of another study whose measurements are reused.

    `reference_digests` are the sha256 of reference models. A stored measurement that has no ratio to one of them counts
    as missing.
    """

    def __init__(self, folder: Path, replay: Path | None = None, reference_digests: Sequence[str] = ()) -> None:
        self._path, self.replay, self._references = folder / FILE, replay, frozenset(reference_digests)
        self._own = _read_measurements(self._path) if self._path.is_file() else _no_measurements()
        self._replayed = _read_measurements(replay / FILE) if replay else _no_measurements()

    def baseline_rows(self) -> list[AnchorRow]:
        """One row for each target: the baseline's file and its p50 in the first round."""
        rows = sorted(self._own["anchors"].items())
        return [{"name": BASELINE, "target": target, "p50_ms": p50_ms} for target, p50_ms in rows]

    def latency_of(self, content: ModelFiles) -> MeasuredLatency | None:
        """The measured latency of files; None if they were not measured."""
        row = self._own["files"].get(content.key)
        return MeasuredLatency(**row, anchor_ms=self._own["anchors"][content.target]) if row else None

    def check_baselines(self, baselines: Mapping[str, ModelFiles]) -> None:
        """Check that the earlier measurements refer to the same files of the baseline.

        Raises
        ------
        ConfigError
            The replayed study was measured with another baseline.
        TrustError
            This study was measured with another baseline.
        """
        for target, baseline in baselines.items():
            if self._replayed["baselines"].get(target, baseline.sha256) != baseline.sha256:
                raise ConfigError(
                    f"--replay {self.replay}: measured with another baseline for {target}; leave the option out, or "
                    "replay a study of this config"
                )
            if self._own["baselines"].get(target, baseline.sha256) != baseline.sha256:
                raise TrustError(
                    f"{self._path}: measured with another baseline for {target}, and converting it again gives other "
                    "bytes; search in another folder"
                )

    def adopt(self, candidates: Iterable[ModelFiles]) -> list[ModelFiles]:
        """Copy the replayed study's measurements, and return the files that neither study has measured."""
        missing, previous = dict[str, ModelFiles](), json.dumps(self._own)
        for files in candidates:
            replayed_row = self._replayed["files"].get(files.key)
            if self._is_complete(replayed_row) and files.target in self._replayed["anchors"]:
                for section in ("anchors", "baselines"):
                    if files.target in self._replayed[section]:
                        self._own[section].setdefault(files.target, self._replayed[section][files.target])
                if not self._is_complete(self._own["files"].get(files.key)):
                    self._own["files"][files.key] = replayed_row
            if not self._is_complete(self._own["files"].get(files.key)):
                missing[files.key] = files
        if json.dumps(self._own) != previous:
            write_json(self._path, self._own)
        return list(missing.values())

    def record_round(
        self, round_result: Mapping[str, Any], candidates: Iterable[ModelFiles], anchors: Mapping[str, ModelFiles]
    ) -> None:
        """Store the results of a round for the candidates and the baseline's files."""
        for target, p50_ms in round_result["anchors"].items():
            first_p50_ms = self._replayed["anchors"].get(target, p50_ms)
            self._own["anchors"].setdefault(target, first_p50_ms)
            self._own["baselines"].setdefault(target, anchors[target].sha256)
        for files in candidates:
            if not self._is_complete(self._own["files"].get(files.key)):
                self._own["files"][files.key] = round_result["ratios"][files.key]
        write_json(self._path, self._own)

    def _is_complete(self, row: Mapping[str, Any] | None) -> bool:
        return row is not None and self._references <= set(row.get("beside", ()))

    def drift_reasons(self, round_result: Mapping[str, Any]) -> list[str]:
        """The reasons to distrust a round: files on the front whose ratio differs from their earlier measurement."""
        reasons = []
        for key, row in round_result["ratios"].items():
            earlier = self._own["files"].get(key)
            if earlier and not earlier["low"] / (1 + DRIFT_TOLERANCE) <= row["ratio"] <= earlier["high"] * (
                1 + DRIFT_TOLERANCE
            ):
                reasons.append(f"a file on the front takes {row['ratio']:.3g} times as long as the baseline's, but it "
                               f"took {earlier['ratio']:.3g} times as long before")  # fmt: skip
        return reasons


def check_replay(folder: Path) -> None:
    """Raise `ConfigError` if a folder does not hold a study that can be replayed."""
    if not (folder / FILE).is_file():
        raise ConfigError(
            f"--replay {folder}: not a study, because it has no {FILE}; name the folder of a finished search, "
            "such as artifacts/digits-search"
        )
    _read_measurements(folder / FILE)


def measure_files(
    candidates: Iterable[ModelFiles],
    baselines: Mapping[str, ModelFiles],
    front: Sequence[ModelFiles],
    measurements: Measurements,
    protocol: TimingProtocol,
    pool: Pool,
    say: Callable[[str], object] = progress.announce,
    reference_inputs: Mapping[str, Any] | None = None,
) -> list[str]:
    """Time in one round the baseline's files and all candidates that have not been measured yet.

    A noisy round is repeated, up to `MAX_ROUNDS` rounds in all. If a replayed study lacks some files, a message says
    that they are measured now.

    Parameters
    ----------
    candidates
        The files to measure.
    baselines
        The baseline's float file, by target.
    front
        Files on the front, which are timed again to notice whether the ratios have changed.
    reference_inputs
        Reference models that are timed in the same round, as in `BaselineFiles`.

    Returns
    -------
    list of str
        The reasons why the round was noisy; empty if it was not.
    """
    measurements.check_baselines(baselines)
    missing = measurements.adopt(candidates)
    if not missing:
        return []
    if measurements.replay:
        what = f"{len(missing)} file was" if len(missing) == 1 else f"{len(missing)} files were"
        say(
            f"--replay {measurements.replay}: {what} not measured there, so they are measured now, and the study "
            "gets another digest."
        )
    targets = {files.target for files in missing}
    front_files = {files.key: files for files in front if files.target in targets}
    arguments = {
        "contents": [files.to_json() for files in {**front_files, **{each.key: each for each in missing}}.values()],
        "anchors": {target: baselines[target].to_json() for target in sorted(targets)},
        "protocol": vars(protocol),
        **({"beside": dict(reference_inputs)} if reference_inputs else {}),
    }
    job = Job(f"measuring {len(missing)} files", "edgekit.search.measurement:time_files", arguments, "measure")
    rounds: list[tuple[list[str], Any]] = []
    for number in range(1, MAX_ROUNDS + 1):
        result = pool.run([job])[0]
        reasons = [*result["disturbed"], *measurements.drift_reasons(result)]
        rounds.append((reasons, result))
        if not reasons:
            break
        consequence = (
            f"; measuring again ({number + 1} of {MAX_ROUNDS})"
            if number < MAX_ROUNDS
            else "; the result is used and marked as noisy"
        )
        say(f"The measurement was noisy: {'; '.join(reasons)}{consequence}.")
    reasons, result = min(rounds, key=lambda each: len(each[0]))
    measurements.record_round(result, missing, baselines)
    return reasons


def time_files(
    contents: list[dict[str, Any]],
    anchors: dict[str, Any],
    protocol: dict[str, Any],
    beside: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Time files, the baseline's files and reference models in turn, as a job of the worker pool with JSON arguments.

    Returns {"ratios": those of each file, by its key, "anchors": the p50 of the baseline, by target, "disturbed": the
    reasons why the round was noisy}.
    """
    timing = TimingProtocol(**protocol)
    files = [ModelFiles.from_json(each) for each in contents]
    baseline_by_target = {target: ModelFiles.from_json(each) for target, each in anchors.items()}
    x = np.load(timing.input, allow_pickle=False)
    files_by_key = {each.key: each for each in [*baseline_by_target.values(), *files]}
    openers: dict[str, Callable[[], Callable[[], object]]] = {
        key: partial(_open_timed_call, files, x, timing.threads) for key, files in files_by_key.items()
    }
    references = {sha256: ReferenceFile(**each) for sha256, each in beside["files"].items()} if beside else {}
    raw = np.load(beside["raw"], allow_pickle=False) if beside else x
    openers |= {sha256: partial(reference.call, raw, timing.threads) for sha256, reference in references.items()}
    with (
        conditions.ConditionsRecorder() as recorder,
        progress.step("measuring the trials", "opening", bench.opening_count(timing.rounds)) as shown,
    ):
        on_round = progress.call_both(recorder.sample, shown.update)
        timed = bench.timed_openings(
            openers,
            timing.rounds,
            timing.rounds,
            timing.calls_per_round,
            timing.warmup_per_round,
            on_round=on_round,
            limit_s=timing.limit_s,
        )
        samples_ms, openings = next(timed)
    p50 = {
        target: intervals.p50_interval(samples_ms[each.key], openings, timing.confidence)
        for target, each in baseline_by_target.items()
    }

    def ratio(key: str, to: str) -> dict[str, float]:
        return asdict(intervals.ratio_interval(samples_ms[key], samples_ms[to], openings, timing.confidence))

    ratios: dict[str, dict[str, Any]] = {
        each.key: ratio(each.key, baseline_by_target[each.target].key) for each in files
    }
    if references:
        for key, row in ratios.items():
            row["beside"] = {sha256: ratio(key, sha256) for sha256 in references}
    noise = float(np.median([conditions.noise(each, openings) for each in samples_ms.values()]))
    return {
        "ratios": ratios,
        "anchors": {target: median.p50_ms for target, median in p50.items()},
        "disturbed": conditions.noise_reasons(recorder.result(noise)),
    }


def _open_timed_call(files: ModelFiles, x: np.ndarray, threads: int) -> Callable[[], object]:
    bytes_by_name = {Path(path).name: Path(path).read_bytes() for path in files.paths}
    with quiet_native():
        backend = open_backend(files.target, bytes_by_name, files.inputs, files.outputs, threads)
    is_nhwc = files.inputs[0].layout == "NHWC"
    inputs = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if is_nhwc else x
    return timed_call(backend, inputs)


def _no_measurements() -> dict[str, Any]:
    return {"format": FORMAT, "anchors": {}, "baselines": {}, "files": {}}


def _read_measurements(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        is_valid = (
            stored["format"] == FORMAT
            and all(isinstance(each, str) for each in stored.setdefault("baselines", {}).values())
            and all(map(_is_positive, stored["anchors"].values()))
            and all(map(_is_row, stored["files"].values()))
            and {key.partition(":")[0] for key in stored["files"]} <= stored["anchors"].keys()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        is_valid = False
    if not is_valid:
        raise TrustError(
            f"{path}: not written by a search of this version of edgekit; remove it, or name another folder"
        )
    return dict(stored)


def _is_row(row: dict[str, Any]) -> bool:
    rows = [{name: value for name, value in row.items() if name != "beside"}, *row.get("beside", {}).values()]
    return all({"ratio", "low", "high"} == set(each) and all(map(_is_positive, each.values())) for each in rows)


def _is_positive(value: object) -> bool:
    return isinstance(value, float) and 0 < value < float("inf")
