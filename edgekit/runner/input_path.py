"""The input path: the declared steps between a file and a raw sample, the same in training and on the device.

A step is, for example, `{"step": "resample", "rate_hz": 16000}`; the list of steps is `raw.input_path` in a manifest. A
file that needs a step which is not declared is refused. This module needs no NumPy; `inputs/` executes the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from edgekit.runner.rules import Rule, is_count, is_integer, is_list, is_number, one_of

Step = Mapping[str, Any]
DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";"}
COUNT = Rule(is_count, "use a whole number above 0")
LIST = Rule(is_list, "use a list")
ID = Rule(lambda value: is_integer(value) and value >= 0, "use a whole number from 0")
MEMBER = Rule(lambda value: isinstance(value, str) and bool(value), "use the name of a member")
FLAG = Rule(lambda value: isinstance(value, bool), "use true or false")
COLUMN = Rule(
    lambda value: bool(value) if isinstance(value, str) else is_count(value),
    "use a column's name, or its number from 1",
)


def _one_of(*values: str | int) -> Rule:
    return one_of(values, f"use one of {values}")


STEPS: dict[str, dict[str, Rule]] = {
    "read_array": {"dtypes": LIST, "shape": LIST},
    "decode_picture": {"orientation": _one_of("apply", "ignore"), "channels": _one_of(1, 3)},
    "resize_picture": {"height": COUNT, "width": COUNT, "fit": _one_of("stretch", "crop", "letterbox")},
    "decode_wav": {},
    "mix_channels": {},
    "resample": {"rate_hz": COUNT},
    "decode_csv": {},
    "rows": {},
    "windows": {"length": COUNT, "stride": COUNT, "fill": _one_of("silence", "none")},
    "decode_text": {},
    "decode_text_table": {"delimiter": _one_of(*DELIMITERS), "header": FLAG, "column": COLUMN},
    "read_tensors": {},
    "tokenize": {"vocabulary": MEMBER, "length": COUNT, "pad_id": ID, "too_long": _one_of("cut", "refuse")},
}
"""The options that each step has."""
OPTIONAL: dict[str, dict[str, Rule]] = {
    "resize_picture": {
        "fill": Rule(lambda value: is_integer(value) and 0 <= value <= 255, "use a whole number from 0 to 255"),
        "filter": _one_of("bicubic", "sampled"),
        "share": Rule(lambda value: is_number(value) and 0 < value < 1, "use a number between 0 and 1"),
    },
}
"""Options that a step may have besides: `fill` is the grey value of the bars of a letterbox, by default 0; `filter` is
Pillow's bilinear one by default; `share` is the sides of a crop as a share of the largest crop's, by default 1.
"""
ORDER = {
    "image": ("read_array", "decode_picture", "resize_picture"),
    "vector": ("read_array", "decode_csv", "rows"),
    "audio": ("read_array", "decode_wav", "mix_channels", "resample", "windows"),
    "window": ("read_array", "decode_csv", "windows"),
    "text": ("decode_text", "decode_text_table", "tokenize"),
    "tensors": ("read_tensors",),
}
"""The steps that each kind of raw sample may have, in this order and each at most once."""
DECODERS = {"image": "decode_picture", "vector": "decode_csv", "audio": "decode_wav", "window": "decode_csv",
            "text": "decode_text", "tensors": "read_tensors"}  # fmt: skip
ARRAY_DTYPES = ("uint8", "int8", "float16", "float32", "float64")


def picture_steps(
    shape: Sequence[int],
    fit: str = "stretch",
    orientation: str = "apply",
    *,
    fill: int = 0,
    filter: str = "bilinear",
    share: float = 1.0,
) -> list[dict[str, Any]]:
    """Return the steps that turn a picture of any size into (height, width, channels); see `OPTIONAL`."""
    height, width, channels = shape
    resize = {"step": "resize_picture", "height": height, "width": width, "fit": fit}
    resize |= {"fill": fill} if fill and fit == "letterbox" else {}
    resize |= {"filter": filter} if filter != "bilinear" else {}
    resize |= {"share": share} if share < 1 and fit == "crop" else {}
    return [{"step": "decode_picture", "orientation": orientation, "channels": channels}, resize]


class PictureTransform(NamedTuple):
    """The place of a picture inside its sample: its top left corner and size in pixels, and its scale on both axes."""

    left: int
    top: int
    width: int
    height: int
    scale_x: float
    scale_y: float

    def to_sample(self, sides: Sequence[float]) -> tuple[float, float, float, float]:
        """Convert a box (left, top, right, bottom) from the picture's pixels to the sample's."""
        left, top, right, bottom = sides
        x, y = self.scale_x, self.scale_y
        return self.left + left * x, self.top + top * y, self.left + right * x, self.top + bottom * y

    def to_picture(self, sides: Sequence[float]) -> tuple[float, float, float, float]:
        """Convert a box from the sample's pixels to the picture's, clipped to its edges."""
        left, top, right, bottom = sides
        max_x, max_y = (float(round(side)) for side in (self.width / self.scale_x, self.height / self.scale_y))
        x = [min(max((side - self.left) / self.scale_x, 0.0), max_x) for side in (left, right)]
        y = [min(max((side - self.top) / self.scale_y, 0.0), max_y) for side in (top, bottom)]
        return x[0], y[0], x[1], y[1]


def picture_transform(size: tuple[int, int], resize: Step) -> PictureTransform:
    """Return where a `resize_picture` step puts a picture of (width, height) in its sample.

    The step must keep the whole picture, so `fit` must be "stretch" or "letterbox". A letterbox keeps the proportions,
    to the nearest pixel, and centres the picture.
    """
    (width, height), (wide, tall) = size, (resize["width"], resize["height"])
    new_width, new_height = wide, tall
    if resize["fit"] == "letterbox":
        if width * tall >= height * wide:
            new_height = max(1, (height * wide + width // 2) // width)
        else:
            new_width = max(1, (width * tall + height // 2) // height)
    left, top = (wide - new_width) // 2, (tall - new_height) // 2
    return PictureTransform(left, top, new_width, new_height, new_width / width, new_height / height)


def windows_step(length: int, stride: int, fill: str = "none") -> dict[str, Any]:
    """Return the step that cuts windows of `length` out of a recording, one every `stride`.

    `fill` says what happens to an incomplete window at the end.
    """
    return {"step": "windows", "length": length, "stride": stride, "fill": fill}


def text_steps(
    vocabulary: str, length: int, pad_id: int, too_long: str = "cut", table: Step | None = None
) -> list[dict[str, Any]]:
    """Return the steps that turn a text, or each text of a `table`, into `length` token IDs.

    `vocabulary` names the bundle's member that holds the vocabulary.
    """
    tokenize = {"step": "tokenize", "vocabulary": vocabulary, "length": length, "pad_id": pad_id, "too_long": too_long}
    return [{"step": "decode_text"}, *([dict(table)] if table else []), tokenize]


def text_table_step(delimiter: str, header: bool, column: str | int) -> dict[str, Any]:
    """Return the step that reads a table with one text per row.

    The texts are in the column with this name, or with this number counted from 1.
    """
    return {"step": "decode_text_table", "delimiter": delimiter, "header": header, "column": column}


def default_steps(kind: str, shape: Sequence[int], dtype: str, columns: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the steps for samples that did not come from files.

    Pictures are resized; sounds and tables must fit exactly. With named columns, each row of a table is a vector.
    Several tensors come in one file, by name.
    """
    if kind == "tensors":
        return [{"step": "read_tensors"}]
    if kind == "image" and dtype == "uint8" and len(shape) == 3:
        return picture_steps(shape)
    if kind == "audio":
        return [{"step": "decode_wav"}]
    if kind == "vector" and columns:
        return [{"step": "decode_csv"}, {"step": "rows"}]
    return [{"step": "decode_csv"}] if kind == "window" and columns else []


def step_names(steps: Sequence[Step]) -> list[str]:
    """Return the names of the steps."""
    return [step["step"] for step in steps]


def find_step(steps: Sequence[Step], name: str) -> Step | None:
    """Return the step with this name, or None if it is not declared."""
    return next((step for step in steps if step["step"] == name), None)
