"""The fields of a bundle's manifest, and the steps that it lists.

The code checks these by hand-written rules that cannot be turned into text, so their descriptions are written here.
`tests/docs/test_reference.py` fails on a field or an option that is missing here, that is not in the code, or of which
a value outside the stated range is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from docs.generate.tables import code, table
from edgekit.runner import input_path, input_vector
from edgekit.runner.box_heads import BoxCode, ScoreCode
from edgekit.runner.bundle import manifest_rules as rules
from edgekit.runner.bundle import smoothing_rules
from edgekit.runner.bundle.manifest import FORMAT, Manifest, RawSpec, StateSpec, TensorSpec
from edgekit.runner.preprocess import steps

Words = Mapping[str, tuple[str, str]]
HEADER = ("key", "type", "meaning")
STEP_HEADER = ("step", "option", "type and range", "meaning")


def _one_of(words: object) -> str:
    return "one of " + ", ".join(code(word) for word in words)  # type: ignore[attr-defined]


MANIFEST: Words = {
    "format": (f"`{FORMAT}`", "Number of this format. A reader refuses any other."),
    "name": ("text", "Name of the bundle: letters, digits, `.`, `_` and `-`, the first a letter or a digit."),
    "version": ("text", "Version of the bundle, spelled like `name`."),
    "target": (_one_of(rules.TARGETS), "The kind of the model files."),
    "variant": ("text", "Name of the variant that was packed, spelled like `name`."),
    "task": (_one_of(rules.TASKS), "What the outputs mean."),
    "raw": ("object", "What one sample looks like before preprocessing."),
    "preprocess": ("list of objects", "Steps from a raw sample to the model's input, in order."),
    "inputs": (
        "list of objects",
        "The model's inputs, without its states. Only samples of the kind `tensors` have several.",
    ),
    "outputs": (
        "list of objects",
        "The model's outputs, without its states. A reader finds them by name, otherwise in the order of the file.",
    ),
    "activation": (_one_of(rules.ACTIVATIONS), "What the reader applies to the outputs to get probabilities."),
    "labels": ("list of text", "Names of the outputs, in their order. Empty for the task `raw`."),
    "threshold": (
        "number ≥ 0",
        "Score above which a sample is an anomaly. Only for the task `anomaly`.",
    ),
    "boxes": (
        "object",
        "Which boxes are answers. Only for the tasks `detection`, `keypoints` and `instance_masks`.",
    ),
    "head": (
        "object",
        "How the outputs of a published detector are converted. Absent if they are distances and logits.",
    ),
    "keypoints": (
        "object",
        "Names of the keypoints, and the lines between them. Only for the task `keypoints`.",
    ),
    "smoothing": (
        "object",
        "How the answers to a stream are smoothed: `method` and its options. Absent if they are not.",
    ),
    "states": (
        "list of objects",
        "What the model keeps from one sample of a stream to the next. Absent if it keeps nothing.",
    ),
    "reference": (
        "text",
        "Member that describes the validation samples. Absent if the bundle has none.",
    ),
    "model_files": ("list of text", "Members that hold the model. An OpenVINO model is an `.xml` and a `.bin`."),
    "golden": ("object", "Recorded inputs, and the outputs that the model gave for them."),
    "members": (
        "object",
        'By name, every other member of the archive: {"bytes": its size, "sha256": 64 lowercase hex digits}.',
    ),
    "architectures": ("list of text", "Machines that the bundle is for, as `uname -m` names them. Empty: all."),
    "requirements": ("list of text", "Python packages that the device needs, as pip requirements."),
    "budget": ("object", "The limits that the variant had to meet, for people. A reader ignores it."),
    "verdict": ("object", "How it met them, for people. A reader ignores it."),
    "provenance": ("object", "What `edgekit reproduce` makes the bundle from. A reader ignores it."),
}
RAW: Words = {
    "kind": (_one_of(rules.KINDS), "What a sample is."),
    "shape": (
        "list of whole numbers > 0",
        "`image`: height, width, channels (1 or 3). `vector`: features. `audio`: samples. `window`: time, channels. "
        "`text`: tokens. `tensors`: the numbers of all tensors together.",
    ),
    "dtype": (_one_of(steps.RAW_DTYPES), "Type of its numbers."),
    "range": (
        "`null` or [lowest, highest]",
        "Values that a float32 sample may have, or the lowest and highest token id of a text. Others are refused.",
    ),
    "sample_rate_hz": ("`null` or whole number > 0", "Samples per second. Only for `audio`."),
    "columns": (
        "list of text",
        "Names of a window's channels or a vector's features. Absent if they have no names.",
    ),
    "input_path": ("list of objects", "Steps from a file to a raw sample, in order."),
    "tensors": (
        "list of objects",
        "The tensors of a sample, in the order of `inputs`. Only for the kind `tensors`.",
    ),
}
RAW_TENSOR: Words = {
    "name": ("text", "Name of the tensor in files and programs."),
    "shape": ("list of whole numbers > 0", "Shape of the model's input, without its batch."),
    "dtype": (_one_of(input_vector.DTYPES), "`float32` takes floats, every other type whole numbers."),
    "range": (
        "`null` or [lowest, highest]",
        "Values that the tensor may have. Others are refused. Whole numbers always have a range.",
    ),
}
TENSOR: Words = {
    "name": ("text", "Name of the tensor in the model."),
    "shape": ("list of whole numbers > 0", "Its shape. The first number is the batch, which is always 1."),
    "dtype": (_one_of(rules.TENSOR_DTYPES), "Type of its numbers, as the model stores them."),
    "layout": (
        _one_of(rules.LAYOUTS),
        "Order of its axes: `N` batch, `H` height, `W` width, `C` channels or features.",
    ),
}
STATE: Words = {
    "name": ("text", "Name of the state, for people."),
    "shape": ("list of whole numbers > 0", "Shape of both its tensors, as the model has them."),
    "dtype": (_one_of(rules.STATE_DTYPES), "Type of their numbers."),
    "input": ("text", "Name of the tensor that takes the state."),
    "output": ("text", "Name of the tensor that gives the next state."),
}
GOLDEN: Words = {
    "inputs": ("text", "Member with the raw samples: an `.npy` array of shape (n, *raw shape)."),
    "outputs": (
        "text",
        "Member with the joined outputs without their batch: an `.npy` array of shape (n, …).",
    ),
    "atol": ("number ≥ 0", "Largest allowed difference of an output."),
    "top1": ("`true` or `false`", "Whether the largest output must also be in the same place."),
}
BOXES: Words = {
    "least_probability": ("number between 0 and 1", "Boxes with a lower probability are not answers."),
    "overlap": (
        "number above 0, at most 1",
        "Of two boxes of a class that overlap by more, the less probable one is dropped.",
    ),
    "most": ("whole number > 0", "Largest number of boxes in an answer."),
}
HEAD: Words = {
    "size": ("[height, width]", "Size of the sample, pixels."),
    "classes": ("whole number > 0", "Number of classes, without a background."),
    "parts": (
        "list of lists of text",
        "What the columns of each output hold, in order: `boxes`, `objectness`, `classes`, or of finished boxes "
        "`boxes`, `score`, `index`, `count`; and `keypoints`, or `coefficients` of masks, whose `prototypes` are an "
        "output of their own. The columns of `level` are not used.",
    ),
    "boxes": (_one_of(get_args(BoxCode)), "What the four numbers of a box are."),
    "scores": (_one_of(get_args(ScoreCode)), "What the scores are."),
    "objectness": (_one_of(("logits", "probabilities")), "What the objectness is. Default `logits`."),
    "points_last": ("`true` or `false`", "Whether the outputs are (columns, points). Default `false`."),
    "normalized": ("`true` or `false`", "Whether coordinates are shares of the sample's sides. Default `false`."),
    "bins": ("whole number, 1 to 64", "Number of logits for each distance. Default 1."),
    "offset": (
        "number, 0 to 1",
        "Where in its cell a point lies from which distances are measured, as a share of the cell. Default 0.5.",
    ),
    "background": ("`null` or whole number ≥ 0", "Index of the background among the scores. Default `null`."),
    "first_index": ("whole number", "Index of the first class, for finished boxes. Default 0."),
    "anchors": ("list", "For each grid, the finest first, the [width, height] of its anchors. Default empty."),
    "priors": ("list", "Grids of prior boxes: `cells` and `step` as [rows, columns], and `sizes`. Default empty."),
    "variances": ("[number > 0, number > 0]", "Factors of the offsets and of the growth. Default [0.1, 0.2]."),
    "keypoints": ("whole number ≥ 0", "Number of keypoints of each box. Default 0."),
    "keypoint_columns": ("`2` or `3`", "Columns of a keypoint: x, y and, if there are 3, its visibility. Default 3."),
    "visibility": (_one_of(("logits", "probabilities")), "What the visibility is. Default `logits`."),
    "keypoint_scale": (
        "[number, number]",
        "Factor and summand that make x and y strides from the centre of a cell. Default [1, 0].",
    ),
    "coefficients": (
        "whole number ≥ 0",
        "Number of prototypes of masks, and of the coefficients of each box for them. Default 0.",
    ),
}
KEYPOINTS: Words = {
    "names": ("list of text", "Names of the keypoints, in the order of the outputs."),
    "skeleton": ("list of [index, index]", "Pairs of keypoints, counted from 0, between which lines are drawn."),
}
STEPS: Mapping[str, Words] = {
    "resize": {
        "height": ("whole number, 1 to 16,384", "Height of the result, pixels."),
        "width": ("whole number, 1 to 16,384", "Width of the result, pixels."),
    },
    "channels": {"count": ("`1` or `3`", "1: grey. 3: red, green, blue.")},
    "bgr": {},
    "scale": {"factor": ("number other than 0", "What every value is multiplied by.")},
    "normalize": {
        "mean": ("list of 1 number, or of one for each channel", "What is subtracted from every value."),
        "std": ("list of 1 number > 0, or of one for each channel", "What the difference is divided by."),
    },
    "log_mel": {
        "rate_hz": ("whole number > 0", "Samples per second of the sound."),
        "window_samples": ("whole number > 0, at most the sound's length", "Length of a window, samples."),
        "hop_samples": ("whole number > 0", "From the start of a window to the start of the next, samples."),
        "fft_samples": ("power of two, from `window_samples` to 16,384", "Length of the Fourier transform, samples."),
        "mels": ("whole number > 0", "Number of mel bands."),
        "low_hz": ("number ≥ 0, < `high_hz`", "Lower edge of the lowest band, Hz."),
        "high_hz": ("number, at most half of `rate_hz`", "Upper edge of the highest band, Hz."),
        "floor": ("number > 0", "What is added to the power before the logarithm."),
    },
}
SMOOTHING: Mapping[str, Words] = {
    "majority": {"windows": ("whole number, 1 to 1,000", "Number of windows that vote.")},
    "mean": {"windows": ("whole number, 1 to 1,000", "Number of windows in the mean.")},
    "hysteresis": {
        "enter": ("number > 0, at most 1 but for `anomaly`", "From which value on a label is given."),
        "leave": ("number > 0, at most `enter`", "Below which value it is no longer given."),
    },
}
INPUT_PATH: Mapping[str, Words] = {
    "read_array": {
        "dtypes": ("list of text", "Types that an `.npy` array may have. Each is converted to that of the sample."),
        "shape": (
            "list of whole numbers",
            "Shape of the array: that of the sample, or of a grey image without its last axis.",
        ),
    },
    "decode_picture": {
        "orientation": (_one_of(("apply", "ignore")), "Whether the EXIF orientation turns the picture."),
        "channels": ("`1` or `3`", "1: grey. 3: red, green, blue."),
    },
    "resize_picture": {
        "height": ("whole number > 0", "Height of the sample, pixels."),
        "width": ("whole number > 0", "Width of the sample, pixels."),
        "fit": (
            _one_of(("stretch", "crop", "letterbox")),
            "Stretch to the size; crop at the centre to its proportions first; or keep everything, between bars.",
        ),
        "fill": ("whole number, 0 to 255", "Optional: grey value of the bars of `letterbox`. Default 0."),
        "filter": (_one_of(("bicubic", "sampled")), "Optional: another filter than `BILINEAR`."),
        "share": ("number between 0 and 1", "Optional: part of the box's sides that `crop` keeps. Default 1."),
    },
    "decode_wav": {},
    "mix_channels": {},
    "resample": {"rate_hz": ("whole number > 0", "Samples per second of the result.")},
    "decode_csv": {},
    "rows": {},
    "windows": {
        "length": ("whole number > 0", "Length of a window, samples or rows."),
        "stride": ("whole number > 0", "From the start of a window to the start of the next."),
        "fill": (_one_of(("silence", "none")), "Whether the last window of a sound is padded with silence."),
    },
    "decode_text": {},
    "decode_text_table": {
        "delimiter": (_one_of(input_path.DELIMITERS), "What separates the cells."),
        "header": ("true or false", "Whether the first row names the columns."),
        "column": (
            "text, or whole number > 0",
            "Column of the texts: its name in the header, or its number, counted from 1.",
        ),
    },
    "read_tensors": {},
    "tokenize": {
        "vocabulary": ("text", "Member with the vocabulary, a `tokenizer.json`."),
        "length": ("whole number > 0", "Number of token ids in a sample."),
        "pad_id": ("whole number ≥ 0", "Id with which a shorter text is padded."),
        "too_long": (_one_of(("cut", "refuse")), "Whether a longer text is cut at its end, or refused."),
    },
}
WITHOUT_OPTIONS = {
    "bgr": "Reverse the order of the channels: blue, green, red.",
    "decode_wav": "Read a WAV file as float32 from -1 to 1.",
    "mix_channels": "Average the channels of a sound.",
    "decode_csv": "Read the columns named in `raw.columns` of a CSV file with a header, as float32.",
    "rows": "Take each row of a table as a raw sample.",
    "decode_text": "Read a file as text in UTF-8, without its byte order mark.",
    "read_tensors": "Read the tensors of an `.npz` file by their names.",
}
TABLES: Mapping[str, tuple[Words, type]] = {
    "manifest": (MANIFEST, Manifest),
    "raw": (RAW, RawSpec),
    "tensor": (TENSOR, TensorSpec),
    "state": (STATE, StateSpec),
}


def keys(name: str) -> str:
    """The table of `manifest`, `raw`, `raw_tensor`, `tensor`, `state`, `golden`, `boxes`, `head` or `keypoints`."""
    by_hand = {"golden": GOLDEN, "boxes": BOXES, "head": HEAD, "keypoints": KEYPOINTS, "raw_tensor": RAW_TENSOR}
    words = by_hand.get(name) or TABLES[name][0]
    return table(HEADER, [(code(key), *text) for key, text in words.items()])


def preprocess() -> str:
    """The steps of preprocessing, with their options."""
    return table(STEP_HEADER, _rows(STEPS))


def smoothing() -> str:
    """The methods of smoothing, with their options and the tasks that they are for."""
    rows = [
        (code(method), ", ".join(map(code, smoothing_rules.TASKS[method])), code(name), *text)
        for method, options in SMOOTHING.items()
        for name, text in options.items()
    ]
    return table(("method", "tasks", "option", "type and range", "meaning"), rows)


def files() -> str:
    """The steps of the input path, with their options."""
    return table(STEP_HEADER, _rows(INPUT_PATH))


def orders() -> str:
    """Which steps of the input path a kind of sample may have, in which order."""
    rows = [(code(kind), ", ".join(map(code, names))) for kind, names in input_path.ORDER.items()]
    return table(("kind", "steps, in this order, each at most once"), rows)


def known(kind: Any) -> set[str]:
    """The keys that the code knows."""
    return {each.name for each in fields(kind)}


def _rows(described: Mapping[str, Words]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for step, options in described.items():
        if not options:
            rows.append((code(step), "none", "–", WITHOUT_OPTIONS[step]))
        rows += [(code(step), code(name), *text) for name, text in options.items()]
    return rows
