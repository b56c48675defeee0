"""The config for a model file: its input decides the size of the samples, and evidence decides the preprocessing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.cli.init.config import comment_lines, describe_sizes, entry_lines, step_lines, to_yaml
from edgekit.cli.init.config_check import read_data
from edgekit.cli.init.inspection import Findings
from edgekit.cli.init.sizes import SplitSizes
from edgekit.core import tasks
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import Task
from edgekit.data import Data, archives, box_formats
from edgekit.models.files import TITLES
from edgekit.models.files.file_facts import FileFacts
from edgekit.models.files.preprocess_search import (
    DEFAULT_MAX_SAMPLES,
    MAX_SAMPLES,
    Chain,
    TriedChain,
    best_of,
    scale_chains,
    try_chains,
    with_geometry,
)
from edgekit.targets.evaluate import spread_indices

TASKS: dict[str, Task] = {"boxes": "detection", "keypoints": "keypoints", "image_folder": "classification"}
"""The sources of pictures for which a config is written, with their tasks."""
VALIDATION_FRACTION, TEST_FRACTION = 0.4, 0.2
"""Nothing is trained, so most samples can be used to measure the accuracy."""
MAX_CALIBRATION = 100
DEFAULT_DROP_PP = 5.0
MAX_SAMPLES_IN_POOL = 5000
"""Most samples of the train pool that are read. Nothing is trained, and so many show a drop of less than a point."""
MAX_DECODED = 3000
"""With more pictures than this, they are not decoded again to compare ways to bring them to size."""
YOLO_GEOMETRY = {"fit": "letterbox", "fill": 114, "filter": "sampled"}
GEOMETRIES: dict[str, tuple[dict[str, Any], ...]] = {
    "classification": (
        {"fit": "stretch"},
        {"fit": "crop"},
        {"fit": "crop", "share": 0.875},
        {"fit": "letterbox"},
    ),
    "detection": (
        {"fit": "letterbox", "fill": 114},
        {"fit": "letterbox"},
        {"fit": "stretch"},
    ),
}
"""Usual ways to bring a picture to the size of the input, the most usual first."""
GEOMETRIES["keypoints"] = GEOMETRIES["detection"]
FILTERS = ("sampled", "bicubic")
GEOMETRY_OPTIONS = ("fit", "fill", "filter", "share")
GUESSING_DEVIATIONS = 3.0
"""How many standard deviations the accuracy must be above that of a constant answer."""


@dataclass(frozen=True, eq=False)
class ModelDraft:
    """Everything that the config for a model file is made from.

    `tried` are the chains of preprocessing that were compared, `chosen` is one of them. `section` is the section of the
    data, and `source` the path of the model file, both as written. `drop_pp` is the budget.
    """

    name: str
    task: Task
    findings: Findings
    facts: FileFacts
    section: dict[str, Any]
    source: str
    data: Data
    sizes: SplitSizes
    chosen: TriedChain
    tried: tuple[TriedChain, ...]
    drop_pp: float
    targets: tuple[str, ...] = ()

    @property
    def chain(self) -> Chain:
        """The chosen chain."""
        return self.chosen.chain

    def text(self) -> str:
        """Return the config as YAML."""
        metric = tasks.load_task(self.task).METRIC
        lines = [
            *comment_lines(f"Written by `edgekit init` for {TITLES[self.facts.kind]}; {self.findings.description}."),
            *comment_lines(f"{describe_sizes(self.sizes)}. Check it with: edgekit run {self.name}.yaml --dry-run"),
            f"name: {to_yaml(self.name)}",
            *entry_lines({"task": self.task}, {"task": tasks.load_task(self.task).METRIC_TEXT}, indent=0),
            "version: 1.0.0",
            "seed: 0",
            "",
            "data:",
            *entry_lines(self.section, self.findings.comments),
            "",
            "model: # used as it is; with a distill section it teaches a smaller network",
            *entry_lines({"source": self.source}),
            "",
            *comment_lines(f"{metric} on {len(self.chosen.results)} samples of train with this and other usual steps:"),
            *(f"#   {each.accuracy:6.1%}  {each.chain.name}" for each in self.ranking[:MAX_LISTED]),
            *self._preprocess(),
            "",
            "budget:",
            f"  accuracy_drop_pp: {self.drop_pp:g} # of {metric}, on the validation split",
            "  # latency_p50_ms: 5.0 # of one call on this machine",
            "  # size_bytes: 100000 # of the model's files",
            "",
            f"targets: [{', '.join(self.targets)}]"
            if self.targets
            else "# targets: [tflite] # a target named here is required; by default all that are possible",
            "",
            "profile:",
            *entry_lines(
                {"compiling": False, "runtimes": False},
                {"runtimes": "true times the unmodified file on every runtime too, which takes some minutes"},
            ),
            "",
            "benchmark:",
            *entry_lines(
                {"most_rounds": MOST_ROUNDS, "load_s": 0},
                {
                    "most_rounds": "of timing; more rounds decide between variants of nearly the same latency",
                    "load_s": "1 measures the winners under load too, which takes a minute or more",
                },
            ),
        ]
        return "\n".join(lines) + "\n"

    @property
    def ranking(self) -> list[TriedChain]:
        """The chains by accuracy, the chosen one first."""
        others = sorted((each for each in self.tried if each is not self.chosen), key=lambda each: -each.accuracy)
        return [self.chosen, *others]

    def _preprocess(self) -> list[str]:
        if not self.chain.steps:
            return ["preprocess: [] # the model takes bytes as they are"]
        return ["preprocess:", *(line for step in self.chain.steps for line in step_lines(step, self.chain.scale))]


MOST_ROUNDS = 10
MAX_LISTED = 8
"""Number of chains that are listed in the config."""


def draft_model_config(
    name: str,
    task: Task | None,
    findings: Findings,
    facts: FileFacts,
    model: Path,
    paths: tuple[str | None, str],
    *,
    preprocess: str | None,
    drop_pp: float | None,
    targets: Sequence[str],
) -> ModelDraft:
    """Read the data at the size of the model's input, and draft the config with the preprocessing that fits best.

    Parameters
    ----------
    paths
        The paths of the data and of the model file to write into the config.
    preprocess
        Name of the chain to use if the evidence does not decide.
    drop_pp
        The budget; None for one that the number of validation samples can show.

    Raises
    ------
    ConfigError
        The model and the data do not fit together, or the evidence does not decide between chains.
    ModelError
        The file cannot be run.
    """
    findings = _with_keypoints(findings, facts, task)
    task = _task(task, findings, facts)
    findings = _sized(findings, facts, task)
    section = {**findings.section, **GEOMETRIES[task][0], **(YOLO_GEOMETRY if _is_yolo(facts) else {})}
    fractions = {"validation": VALIDATION_FRACTION, "test": TEST_FRACTION}
    section |= {f"{split}_fraction": share for split, share in fractions.items() if split not in findings.splits}
    section |= _classes(findings, facts)
    if findings.samples > MAX_SAMPLES_IN_POOL:
        section["limit"] = MAX_SAMPLES_IN_POOL
    data = read_data(name, task, {**section, "calibration_samples": 1, "overlap": "drop"})
    pool = len(data.train) + len(data.calibration)
    section["calibration_samples"] = max(1, min(MAX_CALIBRATION, pool // 2))
    if any(note.startswith("overlap:") for note in data.notes):
        section["overlap"] = "drop"
    data = read_data(name, task, section)
    comparison = _Comparison(name, task, facts, model, section, data)
    chosen, tried = comparison.decide(preprocess)
    section = {key: value for key, value in section.items() if key not in GEOMETRY_OPTIONS} | {**chosen.chain.geometry}
    data = read_data(name, task, section)
    splits = (data.train, data.calibration, data.validation, data.test)
    sizes = SplitSizes(*map(len, splits))
    if drop_pp is None:
        drop_pp = sizes.drop_pp if tasks.load_task(task).AT_MOST_ONE else DEFAULT_DROP_PP
    if paths[0] is not None:
        section["path"] = paths[0]
    return ModelDraft(
        name, task, findings, facts, section, paths[1], data, sizes, chosen, tuple(tried), drop_pp, tuple(targets)
    )


def _with_keypoints(findings: Findings, facts: FileFacts, task: Task | None) -> Findings:
    """Return findings of the source `keypoints` if the data have keypoints and the file predicts them.

    If neither the user nor the metadata of the file names the task, the shapes of the outputs decide; if the format of
    the file does not state them, the data do.
    """
    count, classes = findings.keypoints, len(facts.class_names or findings.classes or ())
    widths = {start + columns * count for start in (4 + classes, 6) for columns in (2, 3)} | {2 * count, 3 * count}
    sides = {side for shape in facts.output_shapes for side in shape[1:]}
    stated = {"pose": "keypoints", None: "keypoints" if widths & sides or not sides else None}.get(facts.task)
    if not count or (task or stated) != "keypoints":
        return findings
    section = {**findings.section, "source": "keypoints"}
    path = Path(section["path"])
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as source:
        annotations = box_formats.read_annotations(section["annotations"], source, with_keypoints=True)
    total = sum(len(picture.boxes) for picture in annotations.pictures)
    description = findings.description.replace(" boxes (", f" boxes, of which {total:,} have {count} keypoints (", 1)
    return replace(findings, section=section, description=description, classes=annotations.classes, task="keypoints")


def _task(task: Task | None, findings: Findings, facts: FileFacts) -> Task:
    source = findings.section["source"]
    if source not in TASKS or facts.picture is None:
        seen = f"takes {_dashed(facts.input_shape)}" if facts.picture is None else f"and the data are {source}"
        raise ConfigError(
            f"--model: {TITLES[facts.kind]} {seen}; for a file, edgekit init writes configs for pictures in folders of "
            "classes, or with boxes or keypoints; write other configs by hand, with model.source"
        )
    if task not in (None, TASKS[source]):
        raise ConfigError(
            f"--task {task}: {findings.description}, which serve {TASKS[source]} of a model file; leave --task out"
        )
    return TASKS[source]


def _sized(findings: Findings, facts: FileFacts, task: Task) -> Findings:
    """Return the findings with the size of the model's input."""
    assert facts.picture is not None
    height, width, channels = facts.picture
    if facts.input_shape[0] > 1:
        raise ConfigError(
            f"--model: {TITLES[facts.kind]} takes {facts.input_shape[0]} pictures at a time, but a device has one; "
            "export it for a batch of 1 or of any size"
        )
    if min(height, width) < 0:
        raise ConfigError(
            f"--model: {TITLES[facts.kind]} leaves the size of its pictures open, {_dashed(facts.input_shape)}; export "
            "it for one size, because the files for a device have one"
        )
    section = {key: value for key, value in findings.section.items() if key not in ("size", "height", "width")}
    section["channels"] = channels
    if task == "classification":
        if height != width:
            raise ConfigError(
                f"--model: takes pictures of {width}×{height}, but a folder of classes is read as squares; write the "
                "config by hand, with the source npz or python"
            )
        section["size"] = height
    else:
        section |= {"height": height, "width": width}
    comment = "the size of the model's input"
    limit_comment = "nothing is trained, so that these are enough; without this line all are read"
    return replace(
        findings,
        section=section,
        description=f"{findings.description.partition(', seen as')[0]}, seen as {width}×{height}",
        comments={"size": comment, "height": comment, "limit": limit_comment},
    )


def _is_yolo(facts: FileFacts) -> bool:
    """Whether the metadata are those that Ultralytics' exporter leaves in a detector."""
    return {"stride", "imgsz", "names"} <= set(facts.metadata) and facts.task in ("detect", "pose")


def _classes(findings: Findings, facts: FileFacts) -> dict[str, Any]:
    """Return the option `classes` if the model's classes differ from those of the data, or have another order."""
    names, own = facts.class_names, findings.classes or ()
    if names is None:
        count = _class_count(facts, findings.section["source"])
        if count is not None and own and count != len(own):
            raise ConfigError(
                f"--model: gives scores for {count} classes, but the data have {len(own)}: {', '.join(own[:8])}; name "
                "all classes of the model under data.classes, in its order, in a config written by hand"
            )
        return {}
    if missing := [name for name in own if name not in names]:
        raise ConfigError(
            f"--model: its classes are {', '.join(names[:8])}{', …' if len(names) > 8 else ''}, but the data also have "
            f"{', '.join(missing[:8])}; rename the classes of the data, or leave these out"
        )
    return {"classes": list(names)} if tuple(own) != names else {}


def _class_count(facts: FileFacts, source: str) -> int | None:
    """Return the number of classes of a classifier with one output of known shape."""
    if source != "image_folder" or len(facts.output_shapes) != 1:
        return None
    sides = [side for side in facts.output_shapes[0][1:] if side != 1]
    return sides[0] if len(sides) == 1 and sides[0] > 0 else None


def _dashed(shape: Sequence[int]) -> str:
    return f"[{', '.join('?' if side < 0 else str(side) for side in shape)}]"


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Tries chains of preprocessing on samples of the train split; `section` reads the data with the usual geometry."""

    name: str
    task: Task
    facts: FileFacts
    model: Path
    section: Mapping[str, Any]
    data: Data

    def decide(self, preferred: str | None) -> tuple[TriedChain, list[TriedChain]]:
        """Return the chosen chain and all that were tried.

        Scale and colours are compared first, and then the ways to bring pictures to size. If several scales are not
        significantly worse than the best one, that of the exporter counts if it is known, and otherwise the user
        decides.
        """
        geometry = {key: self.section[key] for key in GEOMETRY_OPTIONS if key in self.section}
        chains = [with_geometry(chain, geometry) for chain in scale_chains(self.data.raw_shape[2])]
        seen = self._samples(None)
        tried = self._try(chains, seen)
        best, rivals = best_of(tried)
        self._refuse_guessing(best)
        stated = next((each for each in tried if _is_yolo(self.facts) and each.chain == chains[0]), None)
        if preferred is not None:
            best = self._named(preferred, tried)
        elif stated is not None and stated in rivals:
            best = stated
        elif rivals and best is not stated:
            raise ConfigError(self._question(best, rivals))
        self._refuse_guessing(best)  # also if the user named it
        others: list[TriedChain] = []
        for other in self._geometries(geometry):
            samples = self._samples(other)
            if not np.array_equal(samples[0], seen[0]):  # pictures that have the size already stay as they are
                others += self._try([with_geometry(best.chain, other)], samples)
        better = [each for each in others if each.beats(best)]
        return max(better, key=lambda each: each.accuracy, default=best), [*tried, *others]

    def _geometries(self, usual: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the other ways to bring pictures to size, if there are not too many pictures."""
        total = sum(map(len, (self.data.train, self.data.calibration, self.data.validation, self.data.test)))
        if total > MAX_DECODED:
            return []
        others = [*GEOMETRIES[self.task], *({**GEOMETRIES[self.task][0], "filter": name} for name in FILTERS)]
        return [each for each in others if each != dict(usual)]

    def _samples(self, geometry: Mapping[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
        """Return samples of train with their labels, brought to size in another way if a geometry is given."""
        data = self.data
        if geometry is not None:
            section = {key: value for key, value in self.section.items() if key not in GEOMETRY_OPTIONS}
            data = read_data(self.name, self.task, {**section, **geometry})
        most = MAX_SAMPLES.get(self.task, DEFAULT_MAX_SAMPLES)
        chosen = [(split, spread_indices(split, most)) for split in (data.train, data.calibration)]
        x, y = (np.concatenate([getattr(split, name)[rows] for split, rows in chosen])[:most] for name in "xy")
        return x, y

    def _try(self, chains: Sequence[Chain], samples: tuple[np.ndarray, np.ndarray]) -> list[TriedChain]:
        return try_chains(self.model, self.facts.kind, self.task, len(self.data.classes), *samples, chains)

    def _refuse_guessing(self, best: TriedChain) -> None:
        """Raise DataError if a chain gives no significantly better answers than always the same one."""
        task = tasks.load_task(self.task)
        guessing, description = task.constant_answer(self.data.train.y)
        deviation = math.sqrt(guessing * (1 - guessing) / len(best.results)) if task.AT_MOST_ONE else 0.0
        if best.accuracy <= guessing + GUESSING_DEVIATIONS * deviation:
            raise DataError(
                f"--model: no usual preprocessing fits: its {task.METRIC} is {best.accuracy:.1%} on "
                f"{len(best.results)} samples of train ({best.chain.name}), and {description} would give "
                f"{guessing:.1%}; check that its classes are in this order: {', '.join(self.data.classes[:8])}"
            )

    def _named(self, name: str, tried: Sequence[TriedChain]) -> TriedChain:
        named = next((each for each in tried if _matches(name, each.chain)), None)
        if named is None:
            known = ", ".join(f"{_short(each.chain)!r}" for each in tried)
            raise ConfigError(f"--preprocess: got {name!r}; use one of {known}")
        return named

    def _question(self, best: TriedChain, rivals: Sequence[TriedChain]) -> str:
        metric = tasks.load_task(self.task).METRIC
        listed = "".join(
            f"\n  {each.accuracy:6.1%}  --preprocess {_short(each.chain)!r}"
            for each in sorted([best, *rivals], key=lambda each: -each.accuracy)
        )
        return (
            f"--model: {len(best.results)} samples of train do not decide how its input is scaled; name the right one, "
            f"or give more data. {metric} with each:{listed}"
        )


def _short(chain: Chain) -> str:
    return with_geometry(chain, {}).name


def _matches(name: str, chain: Chain) -> bool:
    return name.casefold() in (_short(chain).casefold(), chain.scale.casefold())
