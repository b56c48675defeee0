"""Rules for a declared input path: known steps, in their order, that produce the raw sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import InputError
from edgekit.runner.input_path import ARRAY_DTYPES, DECODERS, OPTIONAL, ORDER, STEPS, Step, step_names
from edgekit.runner.rules import check_rules as check_values

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec


def check_input_path(raw: RawSpec) -> None:
    """Raise InputError for unknown steps, for a wrong order, or if the steps do not produce the raw sample."""
    order, last_index = ORDER[raw.kind], -1
    for position, step in enumerate(raw.steps):
        where = f"raw.input_path[{position}]"
        name = _check_step(step, where)
        if name not in order or order.index(name) <= last_index:
            raise InputError(
                f"{where} {name}: not allowed here; the steps for {raw.kind} are, in this order, {', '.join(order)}"
            )
        last_index = order.index(name)
        problem = _OPTION_CHECKS[name](step, raw) if name in _OPTION_CHECKS else None
        if problem:
            raise InputError(f"{where} {name}: {problem}")
    names = step_names(raw.steps)
    if ("decode_text" in names) != ("tokenize" in names):
        raise InputError("raw.input_path: decode_text and tokenize go together; a sample is the ids of a text")
    decoder = DECODERS.get(raw.kind)
    if set(names) - {"read_array", decoder} and decoder not in names:
        raise InputError(f"raw.input_path: {', '.join(names)} without {decoder}; begin with that step")


def _check_step(step: Any, where: str) -> str:
    name = step.get("step") if isinstance(step, Mapping) else None
    if not isinstance(name, str) or name not in STEPS:
        raise InputError(f"{where}: got {str(step)[:200]!r}; known steps: {', '.join(STEPS)}")
    optional = OPTIONAL.get(name, {})
    if set(step) - set(optional) != {"step", *STEPS[name]}:
        raise InputError(
            f"{where} {name}: has the options {sorted(set(step) - {'step'})}, but needs {sorted(STEPS[name])}"
        )
    check_values(where, step, STEPS[name])
    check_values(where, step, {key: rule for key, rule in optional.items() if key in step})
    return name


def _array(step: Step, raw: RawSpec) -> str | None:
    if any(dtype not in ARRAY_DTYPES for dtype in step["dtypes"]):
        return f"got dtypes {step['dtypes']}; known: {', '.join(ARRAY_DTYPES)}"
    shapes = ([*raw.shape], [*raw.shape[:-1]] if raw.kind == "image" and raw.shape[-1] == 1 else [*raw.shape])
    is_whole = all(type(side) is int for side in step["shape"])
    return (
        None
        if is_whole and list(step["shape"]) in shapes
        else f"got shape {step['shape']}; the sample has {[*raw.shape]}"
    )


def _picture(step: Step, raw: RawSpec) -> str | None:
    if raw.dtype != "uint8":
        return f"pictures are uint8, but the sample is {raw.dtype}"
    return None if step["channels"] == raw.shape[2] else f"got {step['channels']} channels; it must have {raw.shape[2]}"


def _resize(step: Step, raw: RawSpec) -> str | None:
    sides = (step["height"], step["width"])
    for option, fit in (("fill", "letterbox"), ("share", "crop")):
        if option in step and step["fit"] != fit:
            return f"{option} belongs to the fit {fit}, not to {step['fit']}"
    return None if sides == raw.shape[:2] else f"gives {sides}, but the sample has {raw.shape[:2]}"


def _resample(step: Step, raw: RawSpec) -> str | None:
    return None if step["rate_hz"] == raw.sample_rate_hz else f"the sample has {raw.sample_rate_hz} Hz"


def _table(step: Step, raw: RawSpec) -> str | None:
    if raw.dtype != "float32":
        return f"tables are float32, but the sample is {raw.dtype}"
    return None if raw.columns else "needs raw.columns, the names of the channels or features"


def _tokens(step: Step, raw: RawSpec) -> str | None:
    if step["length"] != raw.shape[0]:
        return f"got length {step['length']}; the sample has {raw.shape[0]}"
    is_in_range = raw.range is None or step["pad_id"] <= raw.range[1]
    return None if is_in_range else f"got pad_id {step['pad_id']}, which is outside raw.range"


def _text_table(step: Step, raw: RawSpec) -> str | None:
    is_named = isinstance(step["column"], str) and not step["header"]
    return f"got column {step['column']!r}; without a header, give its number" if is_named else None


def _windows(step: Step, raw: RawSpec) -> str | None:
    if step["fill"] == "silence" and raw.kind != "audio":
        return "only a sound is padded with silence"
    return None if step["length"] == raw.shape[0] else f"got length {step['length']}; the sample has {raw.shape[0]}"


_OPTION_CHECKS: dict[str, Callable[[Step, RawSpec], str | None]] = {
    "read_array": _array, "decode_picture": _picture, "resize_picture": _resize, "resample": _resample,
    "decode_csv": _table, "windows": _windows, "tokenize": _tokens, "decode_text_table": _text_table,
}  # fmt: skip
"""For each step, the check that its options agree with the raw sample."""
