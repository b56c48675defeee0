"""The config that `edgekit init` writes: every section, sized to the data, with a comment on each number."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.cli.init import pretrained_network
from edgekit.cli.init.inspection import Findings
from edgekit.cli.init.sizes import (
    CONFIDENCE,
    SplitSizes,
    measured_steps,
    network_candidates,
    network_pair,
    small_validation_warning,
)
from edgekit.core import tasks
from edgekit.core.tasks import accuracy_drop, embedding
from edgekit.data import Data
from edgekit.stages.bundle import streams

WIDTH = 120
FAST_RATE, SLOW_RATE, ANOMALY_RATE = 0.1, 0.05, 0.2
PICTURE_ANOMALY_RATE = 0.02
"""Learning rate of a convolutional autoencoder. It must be small, because every pixel's error reaches all weights of a
convolution; training with 0.05 to 0.1 diverges.
"""
MOST_TRAINED = 2
DEFAULT_DROP_PP = 5.0
"""The accuracy budget of tasks for which no budget can be derived from the number of validation samples."""
AUGMENTATIONS = {
    "embedding": "shift",
    "classification": "shift",
    "multi_label": "shift",
    "detection": "shift_flip",
    "segmentation": "shift_flip",
}
"""Augmentation by task. A shifted picture shows the same object, but its value in a regression may differ."""
PLAIN_TEXT = re.compile(r"([A-Za-z_]|\.{0,2}/)[\w./:-]*(?<!:)")
"""Text that YAML reads as a string without quotes. All other text is quoted."""
RESERVED_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


@dataclass(frozen=True, eq=False)
class ConfigDraft:
    """Everything that the config is made from. `section` is its section `data`, as it is written into the file.

    With `starts_pretrained`, the network is that of `pretrained_network`, and only the baseline is trained.
    """

    name: str
    task: str
    findings: Findings
    section: dict[str, Any]
    data: Data
    sizes: SplitSizes
    starts_pretrained: bool = False

    @property
    def is_fitted(self) -> bool:
        """Whether the network is fitted to the train split once, instead of being trained."""
        return self.starts_pretrained and self.task == "anomaly"

    def text(self) -> str:
        """Return the config as YAML."""
        sizes = self.sizes
        training = self._training()
        augmentation = AUGMENTATIONS.get(self.task, "none")
        augment = {"augment": augmentation} if self.data.kind == "image" else {}
        training |= augment
        fine_tuning = {"epochs": max(1, sizes.epochs // 6), "batch_size": sizes.batch}
        lines = [
            *comment_lines(f"Written by `edgekit init`: {self.findings.description}."),
            *comment_lines(f"{describe_sizes(sizes)}. Check it with: edgekit run {self.name}.yaml --dry-run"),
            f"name: {to_yaml(self.name)}",
            *entry_lines({"task": self.task}, {"task": tasks.load_task(self.task).METRIC_TEXT}, indent=0),
            "version: 1.0.0",
            "seed: 0",
            "threads: 2 # training: use the same number everywhere, because it affects the last bits",
            "",
            "data:",
            *entry_lines(self.section, self._comments()),
            "",
            *self._model(),
            "",
            *self._preprocess(),
            "",
            *self._budget(),
            "",
            "# targets: [tflite] # a target named here is required; by default all that are possible: tflite, "
            "openvino, onnx",
            "",
            *self._profile(training),
            *([] if self.starts_pretrained else self._student_stages(training, fine_tuning, augment)),
            *self._bundle(),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _model(self) -> list[str]:
        if not self.starts_pretrained:
            model, _ = network_pair(self.task, self.data.kind, self.data.raw_shape)
            note = "trained here; for your own: builder: package.module:function, or source: a model file"
            return [f"model: # {note}", *entry_lines(model)]
        if self.is_fitted:
            note = "PatchCore: distances from the train split on the feature maps of EfficientNet-Lite0"
            comments = {"kwargs": "the patches of the train split that are kept; more cost time and bytes"}
            return [f"model: # {note}", *entry_lines(pretrained_network.ANOMALY_NETWORK, comments)]
        dimensions = {"dimensions": embedding.DIMENSIONS} if self.task == "embedding" else {}
        comment = {"pretrained": "leave this line out to train from new weights, which needs some thousand pictures"}
        if self.task == "detection":
            note = "a detector on the first layers of EfficientNet-Lite0, which have been trained on ImageNet"
            return [f"model: # {note}", *entry_lines(pretrained_network.DETECTOR, comment)]
        network = pretrained_network.NETWORK
        return [
            "model: # EfficientNet-Lite0; its backbone has been trained on ImageNet, and its last layer is new",
            *entry_lines({**network, "kwargs": {**network["kwargs"], **dimensions}}, comment),
        ]

    def _profile(self, training: dict[str, Any]) -> list[str]:
        if self.is_fitted:
            comment = "true times torch.compile too, which takes a minute"
            return ["profile:", *entry_lines({"compiling": False}, {"compiling": comment})]
        steps = -(-self.sizes.train // training["batch_size"])
        return [
            "profile:",
            *entry_lines({**training, **self._folds(), "compiling": False}, {
                "folds": "of a cross-validation, because the validation split is small; leave it out to save the time",
                "epochs": f"of {steps} steps; raise it if accuracy still rises at the end",
                "augment": "random shifts; shift_flip adds mirror images, none leaves the pictures as they are",
                "compiling": "true times torch.compile too, which takes a minute",
            }),
        ]  # fmt: skip

    def _folds(self) -> dict[str, int]:
        """Return the number of folds if a trained backbone is validated on few samples."""
        is_small = self.starts_pretrained and self.sizes.validation < pretrained_network.SMALL_VALIDATION
        return {"folds": pretrained_network.FOLDS} if is_small and self.task != "detection" else {}

    def _student_stages(
        self, training: dict[str, Any], fine_tuning: dict[str, Any], augment: dict[str, Any]
    ) -> list[str]:
        """Return the options of the stages that train a student."""
        sizes, learning_rate = self.sizes, training["learning_rate"]
        return [
            "",
            "distill:",
            *self._students(),
            *entry_lines({**training, "epochs": max(1, round(1.5 * sizes.epochs))}),
            "",
            "prune:",
            *entry_lines({"ratio": 0.5, "steps": 2, **fine_tuning, "learning_rate": learning_rate / 5, **augment}, {
                "ratio": "of the channels is removed by the last step; a step that exceeds the budget is dropped",
            }),
            "",
            "quantize:",
            *entry_lines({**fine_tuning, "learning_rate": learning_rate / 10, **augment}),
        ]  # fmt: skip

    def _preprocess(self) -> list[str]:
        steps = pretrained_network.STEPS if self.starts_pretrained else measured_steps(self.data)
        if not steps:
            tensors_note = "the network scales each tensor by itself"
            reason = (
                tensors_note if self.data.tensors else "token ids are names, not numbers: there is nothing to scale"
            )
            return [f"preprocess: [] # {reason}"]
        return ["preprocess:", *(line for step, note in steps for line in step_lines(step, note))]

    def _students(self) -> list[str]:
        """Return the student, or candidates for it. All candidates are timed, and only a few are trained."""
        _, student = network_pair(self.task, self.data.kind, self.data.raw_shape)
        candidates = network_candidates(self.task, self.data.kind, self.data.raw_shape)
        if not candidates:
            return ["  student: # the same network, half as wide", *entry_lines(student, indent=4)]
        return [
            "  candidates: # all are timed untrained; the fastest are trained briefly, and the best of those is the "
            "student",
            f"    - {to_yaml(student)} # the model's network, half as wide",
            *(f"    - {to_yaml(candidate)}" for candidate in candidates),
            *entry_lines(
                {"candidate_epochs": max(1, self.sizes.epochs // 2), "most_trained": MOST_TRAINED},
                {"candidate_epochs": "of training before the choice", "most_trained": "the fastest candidates"},
            ),
        ]

    def _bundle(self) -> list[str]:
        """Return options for streams, which reduce false alarms."""
        if self.section["source"] != "wav_track" or self.task not in streams.TASKS:
            return []
        comment = "of the answers to a stream, chosen on validation; without this line each window is answered alone"
        return ["", "bundle:", *entry_lines({"smoothing": "auto"}, {"smoothing": comment})]

    def _training(self) -> dict[str, Any]:
        if self.starts_pretrained:
            return pretrained_network.training_options(self.task, self.sizes)
        sizes = self.sizes
        return {"epochs": sizes.epochs, "batch_size": sizes.batch, "learning_rate": self._learning_rate()}

    def _learning_rate(self) -> float:
        """Return the learning rate for the task and the kind of samples. The rates were found on small data sets.

        Networks without batch normalization need a lower rate.
        """
        if self.task == "anomaly":
            return PICTURE_ANOMALY_RATE if self.data.kind == "image" else ANOMALY_RATE
        return FAST_RATE if self.data.kind != "vector" and self.task != "regression" else SLOW_RATE

    def _comments(self) -> dict[str, str]:
        return {
            **self.findings.comments,
            "validation_fraction": "of the train split, because the data have no validation split",
            "test_fraction": "the same for the test split",
            "calibration_samples": "taken from train, to set the ranges of int8",
            "overlap": "some samples are in two splits; they are removed from the earlier one",
        }

    def _budget(self) -> list[str]:
        """Return limits that can be met. The user fills in the limits of the device."""
        device_limits = [
            "  # latency_p50_ms: 5.0 # of one call on this machine",
            "  # size_bytes: 100000 # of the model's files",
        ]
        if not tasks.load_task(self.task).AT_MOST_ONE:
            note = f"of {tasks.load_task(self.task).METRIC}; the bootstrap gives the uncertainty of each drop"
            return ["budget:", f"  accuracy_drop_pp: {DEFAULT_DROP_PP} # {note}", *device_limits]
        samples, lost = self.sizes.validation, self.sizes.lost
        bound_without_loss, bound_with_loss = (
            accuracy_drop.drop_of_counts(errors, 0, samples, CONFIDENCE).bound_pp for errors in (0, lost)
        )
        comment = (
            f"with {samples:,} validation samples, a drop of {bound_without_loss:.2g} pp cannot be excluded at 95 % "
            "confidence, even if no sample is lost"
        )
        if self.task == "classification":
            comment += f"; if {lost} {'is' if lost == 1 else 'are'} lost, {min(bound_with_loss, 100):.3g} pp"
        warning = small_validation_warning(self.sizes)
        comments = [*comment_lines(comment, "  "), *(comment_lines(warning, "  ") if warning else [])]
        return ["budget:", *comments, f"  accuracy_drop_pp: {self.sizes.drop_pp}", *device_limits]


def describe_sizes(sizes: SplitSizes) -> str:
    """Return the sizes of the splits as a sentence."""
    return (
        f"{sizes.train:,} samples train, {sizes.calibration:,} calibrate, {sizes.validation:,} validate, "
        f"{sizes.test:,} test"
    )


def comment_lines(text: str, indent: str = "") -> list[str]:
    """Return the text as YAML comments, wrapped at `WIDTH`."""
    return textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def entry_lines(values: Mapping[str, Any], notes: Mapping[str, str] | None = None, indent: int = 2) -> list[str]:
    """Return a line for each key. A comment that does not fit on the line is placed above the line."""
    prefix, lines = " " * indent, []
    for key, value in values.items():
        line, note = f"{prefix}{key}: {to_yaml(value)}", (notes or {}).get(key)
        if note and len(f"{line} # {note}") <= WIDTH:
            line = f"{line} # {note}"
        elif note:
            lines += comment_lines(note, prefix)
        lines.append(line)
    return lines


def step_lines(step: Mapping[str, Any], note: str) -> list[str]:
    """Return the lines of a preprocess step, with a comment."""
    line = f"  - {to_yaml(step)} # {note}"
    if len(line) <= WIDTH:
        return [line]
    name, *options = step.items()
    lines = [f"  - {name[0]}: {name[1]} # {note}"]
    for key, value in options:
        lines += textwrap.wrap(
            f"{key}: {to_yaml(value)}",
            WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def to_yaml(value: Any) -> str:
    """Format a value as YAML on one line in a form that is read back unchanged."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {to_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_yaml, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    is_plain = PLAIN_TEXT.fullmatch(value) and value.lower() not in RESERVED_WORDS
    return value if is_plain else json.dumps(value, ensure_ascii=False)
