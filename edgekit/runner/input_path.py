"""The input path, declared: what happens between a file and a raw sample, in training and on the device.

A step is `{"step": "resample", "rate_hz": 16000}`; the list stands under `raw.input_path` of a manifest. What is not
declared does not happen: a file that would need it is refused. Needs no numpy; `inputs/` carries the steps out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.manifest import RawSpec

Step = Mapping[str, Any]

STEPS: dict[str, dict[str, Any]] = {
    "read_array": {"dtypes": list, "shape": list},
    "decode_picture": {"orientation": ("apply", "ignore"), "channels": (1, 3)},
    "resize_picture": {"height": int, "width": int, "fit": ("stretch", "crop")},
    "decode_wav": {},
    "mix_channels": {},
    "resample": {"rate_hz": int},
    "decode_csv": {},
    "windows": {"length": int, "stride": int, "fill": ("silence", "none")},
}
"""Options of each step: a whole number above 0, a list, or one of the values that are named."""
ORDER = {
    "image": ("read_array", "decode_picture", "resize_picture"),
    "vector": ("read_array",),
    "audio": ("read_array", "decode_wav", "mix_channels", "resample", "windows"),
    "window": ("read_array", "decode_csv", "windows"),
}
"""By kind of raw sample, the steps that it may have, in this order; each at most once."""
DECODERS = {"image": "decode_picture", "audio": "decode_wav", "window": "decode_csv"}
ARRAY_DTYPES = ("uint8", "int8", "float16", "float32", "float64")


def pictures(shape: Sequence[int], fit: str = "stretch", orientation: str = "apply") -> list[dict[str, Any]]:
    """A picture of any size becomes (height, width, channels)."""
    height, width, channels = shape
    return [
        {"step": "decode_picture", "orientation": orientation, "channels": channels},
        {"step": "resize_picture", "height": height, "width": width, "fit": fit},
    ]


def windows(length: int, stride: int, fill: str = "none") -> dict[str, Any]:
    """Windows of `length` out of a recording, one every `stride`; `fill` says what becomes of the rest at its end."""
    return {"step": "windows", "length": length, "stride": stride, "fill": fill}


def default(kind: str, shape: Sequence[int], dtype: str, columns: Sequence[str] | None) -> list[dict[str, Any]]:
    """Of samples that did not come out of files: pictures are brought to size, sounds and tables must fit exactly."""
    if kind == "image" and dtype == "uint8" and len(shape) == 3:
        return pictures(shape)
    if kind == "audio":
        return [{"step": "decode_wav"}]
    return [{"step": "decode_csv"}] if kind == "window" and columns else []


def names(steps: Sequence[Step]) -> list[str]:
    """The steps' names."""
    return [step["step"] for step in steps]


def find(steps: Sequence[Step], name: str) -> Step | None:
    """The step of this name, if it is declared."""
    return next((step for step in steps if step["step"] == name), None)


def check(raw: RawSpec) -> None:
    """InputError for steps that are none, stand in another order, or do not end in the raw sample."""
    order, place = ORDER[raw.kind], -1
    for position, step in enumerate(raw.steps):
        where = f"raw.input_path[{position}]"
        name = _check_step(step, where)
        if name not in order or order.index(name) <= place:
            raise InputError(
                f"{where} {name}: not here; in this order, the steps for {raw.kind} are {', '.join(order)}"
            )
        place = order.index(name)
        problem = _ENDS[name](step, raw) if name in _ENDS else None
        if problem:
            raise InputError(f"{where} {name}: {problem}")
    found = names(raw.steps)
    decoder = DECODERS.get(raw.kind)
    if set(found) - {"read_array", decoder} and decoder not in found:
        raise InputError(f"raw.input_path: {', '.join(found)} without {decoder}; begin with it")


def _check_step(step: Any, where: str) -> str:
    name = step.get("step") if isinstance(step, Mapping) else None
    if not isinstance(name, str) or name not in STEPS:
        raise InputError(f"{where}: got {str(step)[:200]!r}; known steps: {', '.join(STEPS)}")
    if set(step) != {"step", *STEPS[name]}:
        raise InputError(f"{where} {name}: has {sorted(set(step) - {'step'})}, needed {sorted(STEPS[name])}")
    for option, wanted in STEPS[name].items():
        value = step[option]
        if wanted is int:
            fits = isinstance(value, int) and not isinstance(value, bool) and value > 0
        elif wanted is list:
            fits = isinstance(value, (list, tuple)) and len(value) > 0
        else:
            fits = type(value) in (int, str) and value in wanted
        if not fits:
            told = "a whole number above 0" if wanted is int else "a list" if wanted is list else f"one of {wanted}"
            raise InputError(f"{where}.{option}: got {str(value)[:200]!r}; use {told}")
    return name


def _array(step: Step, raw: RawSpec) -> str | None:
    if any(dtype not in ARRAY_DTYPES for dtype in step["dtypes"]):
        return f"got dtypes {step['dtypes']}; known: {', '.join(ARRAY_DTYPES)}"
    shapes = ([*raw.shape], [*raw.shape[:-1]] if raw.kind == "image" and raw.shape[-1] == 1 else [*raw.shape])
    whole = all(type(side) is int for side in step["shape"])
    return (
        None if whole and list(step["shape"]) in shapes else f"got shape {step['shape']}; the sample has {[*raw.shape]}"
    )


def _picture(step: Step, raw: RawSpec) -> str | None:
    if raw.dtype != "uint8":
        return f"pictures are uint8, the sample is {raw.dtype}"
    return None if step["channels"] == raw.shape[2] else f"got {step['channels']} channels; needed {raw.shape[2]}"


def _resize(step: Step, raw: RawSpec) -> str | None:
    sides = (step["height"], step["width"])
    return None if sides == raw.shape[:2] else f"makes {sides}; the sample has {raw.shape[:2]}"


def _resample(step: Step, raw: RawSpec) -> str | None:
    return None if step["rate_hz"] == raw.sample_rate_hz else f"the sample has {raw.sample_rate_hz} Hz"


def _table(step: Step, raw: RawSpec) -> str | None:
    if raw.dtype != "float32":
        return f"tables are float32, the sample is {raw.dtype}"
    return None if raw.columns else "needs raw.columns, the names of the channels"


def _windows(step: Step, raw: RawSpec) -> str | None:
    if step["fill"] == "silence" and raw.kind != "audio":
        return "only a sound is filled up with silence"
    return None if step["length"] == raw.shape[0] else f"got length {step['length']}; the sample has {raw.shape[0]}"


_ENDS = {
    "read_array": _array, "decode_picture": _picture, "resize_picture": _resize, "resample": _resample,
    "decode_csv": _table, "windows": _windows,
}  # fmt: skip
"""Whether a step's options agree with the raw sample."""
