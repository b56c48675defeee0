"""The config that `edgekit init` writes: every section, sized to the data, each number with what it is for."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.cli.init.inspect import Findings
from edgekit.cli.init.sizes import (
    CONFIDENCE,
    Sizes,
    measured_steps,
    network_candidates,
    network_pair,
    small_validation_warning,
)
from edgekit.core import tasks
from edgekit.core.tasks import accuracy_drop
from edgekit.data import Data
from edgekit.stages.bundle import streams

WIDTH = 120
FAST, SLOW, ANOMALY_RATE = 0.1, 0.05, 0.2
PICTURE_ANOMALY_RATE = 0.02
"""Every pixel's error reaches all weights of a convolution, so steps must be shorter: it diverges from 0.05 to 0.1."""
MOST_TRAINED = 2
ANY_PP = 5.0
"""A budget where the number of samples says nothing about it."""
MOVED = {
    "embedding": "shift",
    "classification": "shift",
    "multi_label": "shift",
    "detection": "shift_flip",
    "segmentation": "shift_flip",
}
"""Moved, a picture shows the same things; it may have another value, and is another one to give back."""
PLAIN = re.compile(r"([A-Za-z_]|\.{0,2}/)[\w./:-]*(?<!:)")
"""Text that YAML takes as it stands; anything else is quoted."""
WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


@dataclass(frozen=True, eq=False)
class Draft:
    """All that the config is made of; `section` is that of the data, as written."""

    name: str
    task: str
    findings: Findings
    section: dict[str, Any]
    data: Data
    sizes: Sizes

    def text(self) -> str:
        """The config, as YAML."""
        model, _ = network_pair(self.task, self.data.kind, self.data.raw_shape)
        sizes = self.sizes
        rate = self._rate()
        training: dict[str, Any] = {"epochs": sizes.epochs, "batch_size": sizes.batch, "learning_rate": rate}
        moved = MOVED.get(self.task, "none")
        alike = {"augment": moved} if self.data.kind == "image" else {}
        training |= alike
        fine = {"epochs": max(1, sizes.epochs // 6), "batch_size": sizes.batch}
        lines = [
            *_comment(f"Written by `edgekit init`: {self.findings.words}."),
            *_comment(f"{describe_sizes(sizes)}. Check it with: edgekit run {self.name}.yaml --dry-run"),
            f"name: {scalar(self.name)}",
            *_entries({"task": self.task}, {"task": tasks.load_task(self.task).METRIC_TEXT}, indent=0),
            "version: 1.0.0",
            "seed: 0",
            "threads: 2 # training: the same number everywhere, for the number decides the last bits",
            "",
            "data:",
            *_entries(self.section, self._comments()),
            "",
            "model: # trained here; of your own: builder: package.module:function, or source: a model file",
            *_entries(model),
            "",
            *self._preprocess(),
            "",
            *self._budget(),
            "",
            "# targets: [tflite] # a target named here must be made; by default all that can: tflite, openvino, onnx",
            "",
            "profile:",
            *_entries({**training, "compiling": False}, {
                "epochs": f"of {-(-sizes.train // sizes.batch)} steps each; more, if accuracy still rises at the end",
                "augment": "random shifts; shift_flip adds mirror images, none leaves the pictures as they are",
                "compiling": "true times torch.compile too, which takes a minute",
            }),
            "",
            "distill:",
            *self._students(),
            *_entries({**training, "epochs": max(1, round(1.5 * sizes.epochs))}),
            "",
            "prune:",
            *_entries({"ratio": 0.5, "steps": 2, **fine, "learning_rate": rate / 5, **alike}, {
                "ratio": "of the channels, by the last step; a step beyond the budget is measured and not kept",
            }),
            "",
            "quantize:",
            *_entries({**fine, "learning_rate": rate / 10, **alike}),
            *self._bundle(),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _preprocess(self) -> list[str]:
        found = measured_steps(self.data)
        if not found:
            several = "the network scales each tensor by itself"
            why = several if self.data.tensors else "token ids are names, not numbers: there is nothing to scale"
            return [f"preprocess: [] # {why}"]
        return ["preprocess:", *(line for step, note in found for line in _step(step, note))]

    def _students(self) -> list[str]:
        """The student, or the networks that it is chosen from: all are timed, and few of them trained."""
        _, student = network_pair(self.task, self.data.kind, self.data.raw_shape)
        others = network_candidates(self.task, self.data.kind, self.data.raw_shape)
        if not others:
            return ["  student: # the same network, half as wide", *_entries(student, indent=4)]
        return [
            "  candidates: # all are timed untrained; the fastest learn a little, and the best of those is the student",
            f"    - {scalar(student)} # as the model, half as wide",
            *(f"    - {scalar(each)}" for each in others),
            *_entries(
                {"candidate_epochs": max(1, self.sizes.epochs // 2), "most_trained": MOST_TRAINED},
                {"candidate_epochs": "before the choice", "most_trained": "candidates, the fastest first"},
            ),
        ]

    def _bundle(self) -> list[str]:
        """What a device that listens is asked for: fewer false alarms."""
        if self.section["source"] != "wav_track" or self.task not in streams.TASKS:
            return []
        words = "of answers to a stream, chosen on validation; without this line each window speaks for itself"
        return ["", "bundle:", *_entries({"smoothing": "auto"}, {"smoothing": words})]

    def _rate(self) -> float:
        """What each task learns at, found on small data; networks without batch normalisation want less."""
        if self.task == "anomaly":
            return PICTURE_ANOMALY_RATE if self.data.kind == "image" else ANOMALY_RATE
        return FAST if self.data.kind != "vector" and self.task != "regression" else SLOW

    def _comments(self) -> dict[str, str]:
        return {
            **self.findings.comments,
            "validation_fraction": "of the train split, for the data have no validation split",
            "test_fraction": "the same for the test split",
            "calibration_samples": "taken out of train: what int8 ranges are set by",
            "overlap": "the same samples stand in two splits; they are taken out of the earlier one",
        }

    def _budget(self) -> list[str]:
        """Limits that can be met; those of the device are for its owner to name."""
        later = [
            "  # latency_p50_ms: 5.0 # of one call on this machine",
            "  # size_bytes: 100000 # of the model's files",
        ]
        if not tasks.load_task(self.task).AT_MOST_ONE:
            said = f"of {tasks.load_task(self.task).METRIC}; the bootstrap says of each network how sure its drop is"
            return ["budget:", f"  accuracy_drop_pp: {ANY_PP} # {said}", *later]
        number, lost = self.sizes.validation, self.sizes.lost
        none, some = (accuracy_drop.drop_of_counts(of, 0, number, CONFIDENCE).bound_pp for of in (0, lost))
        shown = (
            f"{number:,} validation samples that lose none still leave a drop of {none:.2g} pp open, at 95 % confidence"
        )
        if self.task == "classification":
            shown += f"; {lost} lost leave{'s' if lost == 1 else ''} {min(some, 100):.3g} pp"
        little = small_validation_warning(self.sizes)
        comments = [*_comment(shown, "  "), *(_comment(little, "  ") if little else [])]
        return ["budget:", *comments, f"  accuracy_drop_pp: {self.sizes.drop_pp}", *later]


def describe_sizes(sizes: Sizes) -> str:
    """The splits, as a sentence."""
    return (
        f"{sizes.train:,} samples train, {sizes.calibration:,} calibrate, {sizes.validation:,} validate, "
        f"{sizes.test:,} test"
    )


def _comment(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _entries(values: Mapping[str, Any], notes: Mapping[str, str] | None = None, indent: int = 2) -> list[str]:
    """One line for each key; a note that has no room beside it stands above."""
    space, lines = " " * indent, []
    for key, value in values.items():
        line, note = f"{space}{key}: {scalar(value)}", (notes or {}).get(key)
        if note and len(f"{line} # {note}") <= WIDTH:
            line = f"{line} # {note}"
        elif note:
            lines += _comment(note, space)
        lines.append(line)
    return lines


def _step(step: Mapping[str, Any], note: str) -> list[str]:
    line = f"  - {scalar(step)} # {note}"
    if len(line) <= WIDTH:
        return [line]
    name, *options = step.items()
    lines = [f"  - {name[0]}: {name[1]} # {note}"]
    for key, value in options:
        lines += textwrap.wrap(
            f"{key}: {scalar(value)}",
            WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def scalar(value: Any) -> str:
    """A value as YAML in one line, so that it is read back as the very same."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {scalar(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(scalar, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    plain = PLAIN.fullmatch(value) and value.lower() not in WORDS
    return value if plain else json.dumps(value, ensure_ascii=False)
