"""The config for a model file.

The model's input decides the size of the samples, and the model's accuracy on some samples decides the preprocessing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.cli.init.config import comment_lines, describe_sizes, entry_lines, step_lines, to_yaml
from edgekit.cli.init.config_check import read_data
from edgekit.cli.init.inspection import Findings
from edgekit.cli.init.model_inputs import (
    GEOMETRY_OPTIONS,
    SOUND_OPTIONS,
    TASKS,
    chains_for,
    describe_unchanged,
    first_trials,
    is_yolo,
    other_geometries,
    sized,
)
from edgekit.cli.init.sizes import SplitSizes
from edgekit.core import detector_names, tasks
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import Task
from edgekit.data import Data, archives, box_formats
from edgekit.data.box_formats import Extra
from edgekit.models.files import TITLES
from edgekit.models.files.detector_forms import prototype_count
from edgekit.models.files.file_facts import FileFacts, FileProcess
from edgekit.models.files.preprocess_search import (
    DEFAULT_MAX_SAMPLES,
    MAX_SAMPLES,
    Chain,
    TriedChain,
    best_of,
    try_chains,
    with_geometry,
)
from edgekit.models.files.published_detector import EXPORTER_TASKS
from edgekit.targets.evaluate import labelled_train_samples

VALIDATION_FRACTION, TEST_FRACTION = 0.4, 0.2
"""Nothing is trained, so most samples can be used to measure the accuracy."""
MAX_CALIBRATION = 100
DEFAULT_DROP_PP = 5.0
MAX_SAMPLES_IN_POOL = 5000
"""Largest number of samples in the train pool, from which the splits are taken.

Nothing is trained, and this many samples are enough to show an accuracy drop of less than one percentage point.
"""
MAX_DECODED = 3000
"""If there are more pictures than this, the ways to bring pictures to size are not compared, because all pictures would
have to be decoded again for each of them.
"""
GUESSING_DEVIATIONS = 3.0
"""How many standard deviations the accuracy must be above that of a constant answer."""


@dataclass(frozen=True, eq=False)
class ModelDraft:
    """Everything that the config for a model file is made from.

    A chain leads from a sample to the model's input: it consists of options of the data source and preprocess steps.
    `tried` are the chains that were compared, and `chosen` is one of them. `section` is the section `data` and `source`
    is the path of the model file, both as they are written into the file. `drop_pp` limits the accuracy drop. `head`
    names how the outputs of a detector are read, if they can be read in several ways. `date` is the day of the
    comparison.
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
    head: str | None = None
    date: str = ""

    @property
    def chain(self) -> Chain:
        """The chosen chain."""
        return self.chosen.chain

    def text(self) -> str:
        """Return the config as YAML."""
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
            *entry_lines(
                {"source": self.source} | ({"head": self.head} if self.head else {}), {"head": self._reading_comment}
            ),
            "",
            *self._preprocess(),
            "",
            "budget:",
            f"  accuracy_drop_pp: {self.drop_pp:g} # of {tasks.load_task(self.task).METRIC}, on the validation split",
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
            "",
            "preprocess_tried: # what edgekit init measured with this and other ways; notebook 01 shows it",
            *self._tried_lines(),
        ]
        return "\n".join(lines) + "\n"

    def _tried_lines(self) -> list[str]:
        """Return the record of the ways that were tried, see `core.preprocess_record`."""
        shown = self.ranking[:MAX_LISTED]
        facts = {
            "date": self.date,
            "samples": len(self.chosen.results),
            "metric": tasks.load_task(self.task).METRIC,
            "left_out": len(self.tried) - len(shown),
        }
        rows = [
            {
                "input": self._input_name(each),
                "accuracy": round(each.accuracy, 4),
                "behind_pp": [round(float(bound), 1) + 0.0 for bound in each.behind_pp(self.chosen)],
            }
            for each in shown
        ]
        return [*entry_lines(facts), "  tried:", *(f"    - {to_yaml(row)}" for row in rows)]

    def _input_name(self, tried: TriedChain) -> str:
        has_readings = any(each.reading != self.chosen.reading for each in self.tried)
        return f"{tried.chain.name}, read as {tried.head}" if has_readings else tried.chain.name

    @property
    def ranking(self) -> list[TriedChain]:
        """The chains by accuracy, the chosen one first."""
        others = sorted((each for each in self.tried if each is not self.chosen), key=lambda each: -each.accuracy)
        return [self.chosen, *others]

    @property
    def _reading_comment(self) -> str:
        reading = self.chosen.reading
        return f"how its outputs are read: {reading.description}" if reading else ""

    @property
    def geometry_note(self) -> str:
        """Which other ways to bring pictures to size are not significantly worse; empty if there are none."""
        chain, others = self.chain, [each for each in self.ranking if each.chain != self.chain]
        equal = [
            each
            for each in others
            if with_geometry(each.chain, chain.geometry) == chain
            and each.reading == self.chosen.reading
            and not self.chosen.beats(each)
        ]
        if not equal:
            return ""
        kept = ", and the usual way is kept" if chain.geometry == self.tried[0].chain.geometry else ""
        more = f" and {len(equal) - MAX_EQUAL} others" if len(equal) > MAX_EQUAL else ""
        listed = ", ".join(f"{each.chain.geometry_name} {each.accuracy:.1%}" for each in equal[:MAX_EQUAL])
        return f"{chain.geometry_name} is not significantly better than {listed}{more}{kept}"

    def _preprocess(self) -> list[str]:
        if not self.chain.steps:
            return [f"preprocess: [] # {describe_unchanged(self.data)}"]
        return ["preprocess:", *(line for step in self.chain.steps for line in step_lines(step, self.chain.scale))]


MOST_ROUNDS = 10
MAX_EQUAL = 3
"""Number of ways to bring pictures to size that are listed in the output."""
MAX_LISTED = 8
"""Number of chains that are listed in the config."""


def draft_model_config(
    name: str,
    task: Task | None,
    findings: Findings,
    facts: FileFacts,
    process: FileProcess,
    paths: tuple[str | None, str],
    *,
    preprocess: str | None,
    head: str | None,
    drop_pp: float | None,
    targets: Sequence[str],
) -> ModelDraft:
    """Read the data at the size of the model's input, and draft the config with the preprocessing that fits best.

    Parameters
    ----------
    paths
        The paths of the data and of the model file to write into the config.
    preprocess
        Name of the chain to use. If it is None, the samples have to decide.
    head
        Name of the detector whose outputs the file has, if neither the file nor the labels decide.
    drop_pp
        The limit on the accuracy drop, percentage points; None for one that the number of validation samples can show.

    Raises
    ------
    ConfigError
        The model and the data do not fit together, or the samples do not decide between chains.
    ModelError
        The file cannot be run.
    """
    findings = _with_extra(findings, facts, task)
    task = _task(task, findings, facts)
    _check_head(head, task)
    findings = sized(findings, facts)
    section = {**findings.section}
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
    comparison = _Comparison(name, task, facts, process, section, data, head)
    chosen, tried = comparison.decide(preprocess)
    if head is None and any(each.reading != chosen.reading for each in tried):
        head = chosen.head
    usual = section
    section = {key: value for key, value in usual.items() if key not in GEOMETRY_OPTIONS} | {**chosen.chain.geometry}
    if section != usual:
        data = read_data(name, task, section)
    splits = (data.train, data.calibration, data.validation, data.test)
    sizes = SplitSizes(*map(len, splits))
    if drop_pp is None:
        drop_pp = sizes.drop_pp if tasks.load_task(task).AT_MOST_ONE else DEFAULT_DROP_PP
    if paths[0] is not None:
        section["path"] = paths[0]
    return ModelDraft(
        name,
        task,
        findings,
        facts,
        section,
        paths[1],
        data,
        sizes,
        chosen,
        tuple(tried),
        drop_pp,
        tuple(targets),
        head,
        time.strftime("%Y-%m-%d"),
    )


def _with_extra(findings: Findings, facts: FileFacts, task: Task | None) -> Findings:
    """Return findings of the source `keypoints` or `instance_masks` if data and file have such objects.

    If neither the user nor the metadata of the file names the task, the shapes of the outputs decide; if the format of
    the file does not state them, the data do.
    """
    count, classes = findings.keypoints, len(facts.class_names or findings.classes or ())
    widths = {start + columns * count for start in (4 + classes, 6) for columns in (2, 3)} | {2 * count, 3 * count}
    sides = {side for shape in facts.output_shapes for side in shape[1:]}
    size = facts.picture[:2] if facts.picture else (0, 0)
    has_prototypes = prototype_count([shape[1:] for shape in facts.output_shapes], size) > 0
    stated = {word: name for name, word in EXPORTER_TASKS.items()}.get(facts.task or "")
    if facts.task is None:
        has_keypoints = count > 0 and (not sides or bool(widths & sides))
        stated = "keypoints" if has_keypoints else "instance_masks" if has_prototypes else None
    extra: Extra
    if (task or stated) == "keypoints" and count:
        source, extra, words = "keypoints", "keypoints", f"{count} keypoints"
    elif (task or stated) == "instance_masks" and findings.has_masks:
        source, extra, words = "instance_masks", "masks", "masks"
    else:
        return findings
    section = {**findings.section, "source": source}
    path = Path(section["path"])
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as archive:
        annotations = box_formats.read_annotations(section["annotations"], archive, extra)
    total = sum(len(picture.boxes) for picture in annotations.pictures)
    description = findings.description.replace(" boxes (", f" boxes, of which {total:,} have {words} (", 1)
    return replace(findings, section=section, description=description, classes=annotations.classes, task=TASKS[source])


def _task(task: Task | None, findings: Findings, facts: FileFacts) -> Task:
    source = findings.section["source"]
    if source not in TASKS:
        raise ConfigError(
            f"--model: {TITLES[facts.kind]}, and the data are {source}; for a file, edgekit init writes configs "
            "for pictures in folders of classes, or with boxes, keypoints or masks of objects, sounds in folders of "
            "classes, and tables with a class for each row; write other configs by hand, with model.source"
        )
    if task not in (None, TASKS[source]):
        raise ConfigError(
            f"--task {task}: {findings.description}, which serve {TASKS[source]} of a model file; leave --task out, or "
            "write the config by hand, with model.source"
        )
    if findings.labels is not None and findings.labels.dtype.kind == "f":
        raise ConfigError(
            f"--model: the labels are numbers such as {findings.labels[0]:g}, and no classes; write the config by "
            "hand, with task: regression and model.source"
        )
    return TASKS[source]


def _check_head(head: str | None, task: Task) -> None:
    """Raise ConfigError if `--head` is no known name, or there are no boxes."""
    if head is None:
        return
    try:
        detector_names.parse(head)
    except ConfigError as error:
        raise ConfigError(f"--head: {error}") from None
    if task not in tasks.BOX_TASKS:
        raise ConfigError(f"--head {head}: belongs to a detector, but the data serve {task}; leave it out")


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
    if source == "boxes" or len(facts.output_shapes) != 1:
        return None
    sides = [side for side in facts.output_shapes[0][1:] if side != 1]
    return sides[0] if len(sides) == 1 and sides[0] > 0 else None


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Tries chains on samples of the train split. `section` brings pictures to size in the most usual way."""

    name: str
    task: Task
    facts: FileFacts
    process: FileProcess
    section: Mapping[str, Any]
    data: Data
    head: str | None = None

    def decide(self, preferred: str | None) -> tuple[TriedChain, list[TriedChain]]:
        """Return the chosen chain and all that were tried.

        Scale and colours are compared first, together with the ways to read the outputs, and then the ways to bring
        pictures to size. The scale and colours that `preferred` names are used in any case. Otherwise, if other scales
        are not significantly worse than the best one, that of the program that exported the file is used if it is known
        and among them. If it is not, the user has to name one.
        """
        usual, *others = first_trials(self.section, self.facts)
        seen = self._samples(None)
        chains = chains_for(usual, self.data, seen[0])
        tried = self._try(chains, seen, self.head)
        for trial in others:
            samples = self._samples(trial.geometry)
            tried += self._try(chains_for(trial, self.data, samples[0]), samples, self.head)
        self._refuse_guessing(best_of(tried)[0])
        candidates = self._of_one_reading(tried if preferred is None else self._named(preferred, tried))
        best, rivals = best_of(candidates)
        stated = next((each for each in candidates if is_yolo(self.facts) and each.chain == chains[0]), None)
        if stated is not None and stated in rivals:
            best = stated
        elif rivals and best is not stated:
            raise ConfigError(self._question(best, rivals))
        self._refuse_guessing(best)  # also if the user named it
        resized: list[TriedChain] = []
        for other in self._geometries():
            samples = self._samples(other)
            if not np.array_equal(samples[0], seen[0]):  # pictures that have the size already stay as they are
                resized += self._try([with_geometry(best.chain, other)], samples, best.head or self.head)
        better = [each for each in resized if each.beats(best)]
        return max(better, key=lambda each: each.accuracy, default=best), [*tried, *resized]

    def _of_one_reading(self, tried: Sequence[TriedChain]) -> Sequence[TriedChain]:
        """Return the chains with the most accurate way to read the outputs.

        Raises
        ------
        ConfigError
            With its best chain, another way is not significantly worse.
        """
        best, _ = best_of(tried)
        ways = dict.fromkeys(each.reading for each in tried)
        others = [best_of([each for each in tried if each.reading == way])[0] for way in ways if way != best.reading]
        if rivals := [each for each in others if not best.beats(each)]:
            raise ConfigError(self._question_of_reading(best, rivals))
        return [each for each in tried if each.reading == best.reading]

    def _question_of_reading(self, best: TriedChain, rivals: Sequence[TriedChain]) -> str:
        listed = "".join(
            f"\n  {each.accuracy:6.1%}  --head {each.head!r}{f': {each.reading.description}' if each.reading else ''}"
            for each in (best, *rivals)
        )
        return (
            f"--model: {len(best.results)} samples of train do not decide how its outputs are read; name the right "
            f"way, or give more data. {tasks.load_task(self.task).METRIC} with each:{listed}"
        )

    def _geometries(self) -> list[dict[str, Any]]:
        """Return the other ways to bring pictures to size, if there are not too many pictures."""
        total = sum(map(len, (self.data.train, self.data.calibration, self.data.validation, self.data.test)))
        return other_geometries(self.section) if total <= MAX_DECODED else []

    def _samples(self, geometry: Mapping[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
        """Return samples of train with their labels, brought to size in another way if a geometry is given."""
        data = self.data
        if geometry is not None:
            section = {key: value for key, value in self.section.items() if key not in GEOMETRY_OPTIONS}
            data = read_data(self.name, self.task, {**section, **geometry})
        return labelled_train_samples(data, MAX_SAMPLES.get(self.task, DEFAULT_MAX_SAMPLES))

    def _try(
        self, chains: Sequence[Chain], samples: tuple[np.ndarray, np.ndarray], head: str | None
    ) -> list[TriedChain]:
        return try_chains(self.process, self.facts.kind, self.task, len(self.data.classes), *samples, chains, head)

    def _refuse_guessing(self, best: TriedChain) -> None:
        """Raise DataError if a chain is not significantly more accurate than always giving the same answer."""
        task = tasks.load_task(self.task)
        guessing, description = task.constant_answer(self.data.train.y)
        deviation = math.sqrt(guessing * (1 - guessing) / len(best.results)) if task.AT_MOST_ONE else 0.0
        if best.accuracy <= guessing + GUESSING_DEVIATIONS * deviation:
            raise DataError(
                f"--model: no usual preprocessing fits: its {task.METRIC} is {best.accuracy:.1%} on "
                f"{len(best.results)} samples of train ({best.chain.name}), and {description} would give "
                f"{guessing:.1%}; check that its classes are in this order: {', '.join(self.data.classes[:8])}"
                f"{self._other_head(best)}"
            )

    def _other_head(self, best: TriedChain) -> str:
        """Return that `--head` may help, if it may."""
        if self.task not in tasks.BOX_TASKS or (best.reading and best.reading.is_proved):
            return ""
        read_as = best.reading.description if best.reading else "distances and logits"
        return f". Its outputs were read as {read_as}; --head names another detector"

    def _named(self, name: str, tried: Sequence[TriedChain]) -> list[TriedChain]:
        named = next((each.chain for each in tried if _matches(name, each.chain)), None)
        if named is None:
            known = ", ".join(dict.fromkeys(f"{_short(each.chain)!r}" for each in tried))
            raise ConfigError(f"--preprocess: got {name!r}; use one of {known}")
        return [each for each in tried if each.chain == named]

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
    """Return the name of a chain without the way to bring pictures to size, which is compared later."""
    kept = {key: value for key, value in chain.geometry.items() if key in SOUND_OPTIONS}
    return with_geometry(chain, kept).name


def _matches(name: str, chain: Chain) -> bool:
    return name.casefold() in (_short(chain).casefold(), chain.scale.casefold())
