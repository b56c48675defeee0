"""Rules for a manifest: tables for single values, and functions for values that must fit together.

`check_manifest` raises InputError, which `manifest_json` turns into BundleError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgekit.runner import input_vector
from edgekit.runner.bundle import input_path_rules
from edgekit.runner.errors import BundleError, InputError
from edgekit.runner.rules import (
    FLAG,
    OBJECT,
    PRINTABLE,
    SHAPE,
    TEXT,
    TEXTS,
    Rule,
    check_keys,
    is_count,
    is_integer,
    is_limits,
    is_list,
    is_number,
    is_printable,
    is_shape,
    one_of,
    require,
)
from edgekit.runner.rules import check_rules as check_values

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec

TARGETS = ("tflite", "openvino", "onnx")
TASKS = (
    "classification", "multi_label", "regression", "anomaly", "detection", "keypoints", "instance_masks",
    "segmentation", "embedding", "raw",
)  # fmt: skip
BOX_TASKS = ("detection", "keypoints", "instance_masks")
"""Tasks whose answers are boxes."""
ACTIVATIONS = ("softmax", "sigmoid", "none")
ACTIVATIONS_OF = {
    "classification": ("softmax", "none"),
    "multi_label": ("sigmoid", "none"),
    **dict.fromkeys(BOX_TASKS, ("sigmoid",)),
}
"""The activations that each task allows. All other tasks allow only "none"."""
KINDS = {"image": 3, "vector": 1, "audio": 1, "window": 2, "text": 1, "tensors": 1}
"""Kinds of raw samples, and their numbers of axes."""
LAYOUTS = {"NHWC": 4, "NCHW": 4, "NC": 2, "ANY": None}
TENSOR_DTYPES = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64")
TOKEN_ID_DTYPES = ("int32", "int64")
"""Dtypes of a model's input for token IDs."""
STATE_DTYPES = ("float32", "float16", "int32", "int64")
"""Dtypes of recurrent states. int8 is excluded, because a state's output and input may have different scales."""
LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
OTHER_CHARACTERS = {ord(letter): None for letter in "._-"}
HEX_DIGITS = frozenset("0123456789abcdef")


def is_member(name: str) -> bool:
    """Whether a member may have this name: components of letters, digits, '.', '_' and '-', none of them hidden."""
    components = name.split("/")
    return all(
        component and component[0] in LETTERS and LETTERS.issuperset(component.translate(OTHER_CHARACTERS))
        for component in components
    )


def _is_line(value: Any) -> bool:
    return is_list(value) and len(value) == 2 and all(map(is_integer, value))


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and HEX_DIGITS.issuperset(value)


NAME = Rule(
    lambda value: isinstance(value, str) and "/" not in value and is_member(value),
    "use letters, digits, '.', '_' and '-'",
)
FRACTION = Rule(lambda value: is_number(value) and 0 < value < 1, "must be a number between 0 and 1")
MANIFEST = {
    "name": NAME,
    "version": NAME,
    "variant": NAME,
    "target": one_of(TARGETS),
    "task": one_of(TASKS),
    "budget": OBJECT,
    "verdict": OBJECT,
    "provenance": OBJECT,
    "activation": one_of(ACTIVATIONS),
    "labels": TEXTS,
    "model_files": TEXTS,
    "requirements": TEXTS,
    "architectures": TEXTS,
    "members": OBJECT,
    "golden": OBJECT,
    "preprocess": Rule(lambda value: isinstance(value, list), "must be a list of steps"),
}
TENSOR = {"name": TEXT, "dtype": one_of(TENSOR_DTYPES), "layout": one_of(LAYOUTS)}
STATE = {"name": PRINTABLE, "input": PRINTABLE, "output": PRINTABLE, "shape": SHAPE, "dtype": one_of(STATE_DTYPES)}
RAW_TENSOR = {
    "name": PRINTABLE,
    "shape": SHAPE,
    "dtype": one_of(input_vector.DTYPES),
    "range": Rule(lambda value: value is None or is_limits(value), "must be [lowest, highest]"),
}
MEMBER = {
    "bytes": Rule(lambda value: is_integer(value) and value >= 0, "must be a size"),
    "sha256": Rule(_is_sha256, "must be 64 hex digits"),
}
GOLDEN = {"atol": Rule(lambda value: is_number(value) and value >= 0, "must be a number from 0"), "top1": FLAG}
BOXES = {
    "least_probability": FRACTION,
    "overlap": Rule(lambda value: is_number(value) and 0 < value <= 1, "must be a number above 0, and at most 1"),
    "most": Rule(is_count, "must be a whole number above 0"),
}

KEYPOINTS = {
    "names": Rule(lambda value: is_list(value) and all(map(is_printable, value)), "must list texts"),
    "skeleton": Rule(
        lambda value: isinstance(value, (list, tuple)) and all(map(_is_line, value)), "must list pairs of indices"
    ),
}

Test = Callable[[Any], Any]
RAW: tuple[tuple[str, Test, Test, str], ...] = (
    ("shape", lambda raw: True, lambda raw: is_shape(raw.shape) and len(raw.shape) == KINDS[raw.kind], "not a {kind}"),
    ("range", lambda raw: raw.range is not None,
     lambda raw: is_limits(raw.range) and raw.range[0] < raw.range[1], "must be [lowest, highest]"),
    ("range", lambda raw: raw.range is not None,
     lambda raw: raw.dtype in ("float32", "int32"), "only float32 and int32 samples have one"),
    ("sample_rate_hz", lambda raw: raw.kind == "audio",
     lambda raw: is_count(raw.sample_rate_hz), "must be a whole number above 0"),
    ("dtype", lambda raw: raw.kind == "audio", lambda raw: raw.dtype == "float32", "audio is float32 from -1 to 1"),
    ("sample_rate_hz", lambda raw: raw.kind != "audio", lambda raw: raw.sample_rate_hz is None, "only audio has one"),
    ("columns", lambda raw: raw.columns is not None,
     lambda raw: raw.kind in ("vector", "window"), "only vectors and windows have them"),
    ("columns", lambda raw: raw.columns is not None,
     lambda raw: is_list(raw.columns) and all(map(is_printable, raw.columns)) and _are_unique(raw.columns),
     "must list different names"),
    ("columns", lambda raw: raw.columns is not None,
     lambda raw: len(raw.columns) == raw.shape[-1], "name each of the {last} channels or features"),
    ("dtype", lambda raw: raw.kind != "text", lambda raw: raw.dtype != "int32", "only a text is int32"),
    ("dtype", lambda raw: raw.kind == "text", lambda raw: raw.dtype == "int32", "token ids are int32"),
    ("range", lambda raw: raw.kind == "text",
     lambda raw: raw.range is not None and raw.range[0] == 0 and all(map(is_integer, raw.range)),
     "must be [0, the highest token id]"),
)  # fmt: skip
"""Rules for a raw sample, in order: the key, when the rule applies, the rule, and the advice for the error message."""


def check_manifest(manifest: Manifest) -> None:
    """Raise InputError or BundleError for the first inconsistency."""
    if manifest.raw.tensors is not None or manifest.raw.kind == "tensors" or len(manifest.inputs) > 1:
        _check_tensors(manifest)
    check_values("", vars(manifest), MANIFEST)
    _check_raw(manifest.raw)
    for key in ("inputs", "outputs"):
        specs = getattr(manifest, key)
        for position, spec in enumerate(specs):
            _check_spec(f"{key}[{position}]", spec)
        _need_names(key, [spec.name for spec in specs])
    _check_members(manifest.members)
    _check_files(manifest)
    _check_preprocess(manifest)
    _check_task(manifest)
    if manifest.smoothing is not None:
        from edgekit.runner.bundle import smoothing_rules

        smoothing_rules.check_smoothing(manifest.smoothing, manifest.task)
        smoothing_rules.check_kind(manifest.raw.kind)
    if manifest.states is not None:
        _check_states(manifest)


def _are_unique(names: Any) -> bool:
    return len(set(names)) == len(names)


def _need_names(key: str, names: list[Any]) -> None:
    require(_are_unique(names), key, names, "tensors need names of their own")


def _check_raw(raw: RawSpec) -> None:
    check_values("raw", vars(raw), {"kind": one_of(KINDS)})
    for key, applies, holds, fix in RAW:
        if applies(raw):
            require(holds(raw), f"raw.{key}", getattr(raw, key), fix.format(kind=raw.kind, last=raw.shape[-1]))
    input_path_rules.check_input_path(raw)


def _check_spec(where: str, spec: TensorSpec) -> None:
    check_values(where, vars(spec), TENSOR)
    fits = is_shape(spec.shape) and LAYOUTS[spec.layout] in (None, len(spec.shape)) and spec.shape[0] == 1
    require(fits, f"{where}.shape", list(spec.shape), f"must be {spec.layout} with a batch of 1")


def _check_members(members: dict[str, Any]) -> None:
    for name, facts in members.items():
        require(is_member(name), "members", name, "must be a plain relative name")
        require(name != "manifest.json", "members", name, "the manifest cannot list itself")
        check_keys(f"members.{name}", facts, MEMBER)
        check_values(name, facts, MEMBER)


def _check_files(manifest: Manifest) -> None:
    """Check `golden`, and that all files that the manifest names are among its members, if it lists any."""
    golden = manifest.golden
    check_keys("golden", golden, ("inputs", "outputs", *GOLDEN))
    check_values("golden", golden, GOLDEN)
    require(manifest.model_files, "model_files", manifest.model_files, "name at least one")
    vocabularies = [step["vocabulary"] for step in manifest.raw.steps if step["step"] == "tokenize"]
    reference = [] if manifest.reference is None else [manifest.reference]
    for name in (*manifest.model_files, golden["inputs"], golden["outputs"], *vocabularies, *reference):
        require(isinstance(name, str) and is_member(name), "member name", name, "must be a plain relative name")
        require(not manifest.members or name in manifest.members, "members", name, "it is named but not listed")


def _check_preprocess(manifest: Manifest) -> None:
    """Check that the steps turn the raw sample into the model's input."""
    from edgekit.runner.preprocess import steps

    raw, model = manifest.raw, manifest.input
    if raw.kind == "window":
        require(
            raw.dtype in ("float32", model.dtype),
            "raw.dtype",
            raw.dtype,
            "windows must be float32, or have the model's dtype",
        )
    takes_ids = model.dtype in TOKEN_ID_DTYPES
    require(takes_ids == (raw.kind == "text"), "input.dtype", model.dtype, "int32 or int64 for a text only")
    shape = steps.check(manifest.preprocess, raw.shape, raw.dtype)
    for step in manifest.preprocess:
        if step["step"] == "log_mel":
            rate = raw.sample_rate_hz
            require(
                step["rate_hz"] == rate,
                "preprocess.rate_hz",
                step["rate_hz"],
                f"must be the rate of the samples, {rate}",
            )
    expected = model.shape[1:]
    if model.layout == "NCHW":
        expected = (*expected[1:], expected[0])
    require(
        shape == expected, "preprocess", list(shape), f"makes another shape than the model's input {list(expected)}"
    )


def _check_task(manifest: Manifest) -> None:
    """Check that the outputs and labels match the task."""
    task, labels = manifest.task, manifest.labels
    owners = {"threshold": ("anomaly",), "boxes": BOX_TASKS, "head": BOX_TASKS, "keypoints": ("keypoints",)}
    for key, tasks in owners.items():
        value = getattr(manifest, key)
        require(task in tasks or value is None, key, value, f"the task {task} has none")

    if task in ("raw", "embedding"):
        require(not labels, "labels", labels, f"the outputs of the task {task} have no labels")
        if task == "embedding":
            output = _only_output(manifest)
            require(output.layout == "NC", "outputs[0].layout", output.layout, "an embedding needs the layout NC")
    elif task == "anomaly":
        _check_anomaly(manifest)
    elif task in BOX_TASKS:
        _check_boxes(manifest)
    elif task == "segmentation":
        from edgekit.runner import masks

        masks.check_grids(manifest.raw.shape, len(labels), [each.answer for each in manifest.outputs])
    else:
        output = _only_output(manifest)
        require(output.layout == "NC", "outputs[0].layout", output.layout, f"the task {task} needs the layout NC")
        require(
            len(labels) == output.shape[-1],
            "labels",
            len(labels),
            f"name each of the {output.shape[-1]} values of the output",
        )
    require(all(map(str.isprintable, labels)), "labels", labels, "must be printable")
    activations, fix = ACTIVATIONS_OF.get(task, ("none",)), "classes need softmax, or none"
    if task != "classification":
        require(_are_unique(labels), "labels", labels, f"the values of a {task} need names of their own")
        fix = f"{task}: {' or '.join(activations)}"
    require(manifest.activation in activations, "activation", manifest.activation, fix)
    if task != "classification":
        require(not manifest.golden["top1"], "golden.top1", True, f"a {task} has no first label")


def _only_output(manifest: Manifest) -> TensorSpec:
    count = len(manifest.outputs)
    require(count == 1, "outputs", count, f"a model for the task {manifest.task} has one")
    return manifest.outputs[0]


def _check_anomaly(manifest: Manifest) -> None:
    """Check that the output is a reconstruction of the input, channels first, or a map of distances of a picture."""
    output, expected, threshold = _only_output(manifest), manifest.input.answer, manifest.threshold
    is_map = len(expected) == 3 and len(output.answer) == 3 and output.answer[0] == 1
    require(
        output.answer == expected or is_map,
        "outputs[0].shape",
        list(output.shape),
        f"must be {[1, *expected]}, channels first, or [1, 1, rows, columns] for pictures",
    )
    require(len(manifest.labels) == 2, "labels", manifest.labels, "name the normal and the anomaly")
    require(is_number(threshold) and threshold >= 0, "threshold", threshold, "must be a number from 0")


def _check_keypoints(manifest: Manifest) -> int:
    """Check the names of the keypoints and the lines between them, and return the number of output columns."""
    from edgekit.runner import boxes, keypoints

    check_keys("keypoints", manifest.keypoints, KEYPOINTS)
    values: Any = manifest.keypoints
    check_values("keypoints", values, KEYPOINTS)
    names, skeleton = values["names"], values["skeleton"]
    require(_are_unique(names), "keypoints.names", names, "keypoints need names of their own")
    fits = all(0 <= end < len(names) for line in skeleton for end in line)
    require(fits, "keypoints.skeleton", skeleton, f"there are {len(names)} keypoints, counted from 0")
    return boxes.FIELDS + keypoints.VALUES * len(names)


def _check_boxes(manifest: Manifest) -> None:
    """Check that the outputs are points of grids over the picture, each with a box and scores, or converted to that."""
    from edgekit.runner import boxes

    raw = manifest.raw
    columns = boxes.BOX_SIDES + len(manifest.labels)
    if manifest.task != "detection":
        require(manifest.head is not None, "head", None, f"the task {manifest.task} needs one")
        coefficients: Any = (manifest.head or {}).get("coefficients", 0)
        columns = _check_keypoints(manifest) if manifest.task == "keypoints" else boxes.FIELDS + coefficients
    if manifest.head is not None:
        from edgekit.runner.bundle import head_rules

        head_rules.check_head(manifest.head, manifest)
    shape = manifest.output_shape
    require(raw.kind == "image", "raw.kind", raw.kind, f"the task {manifest.task} takes pictures")
    input_size = manifest.input.answer[1:]
    require(
        input_size == raw.shape[:2],
        "input.shape",
        list(input_size),
        f"the sample has {list(raw.shape[:2])}: resize before it",
    )
    require(len(shape) == 2 and shape[1] == columns, "outputs", list(shape), f"must be [points, {columns}] when joined")
    require(manifest.labels, "labels", manifest.labels, "name the classes")
    try:
        if manifest.head is None:
            boxes.grid_strides(raw.shape[:2], shape[0])
    except BundleError as error:
        raise InputError(f"outputs: {error}") from None
    check_keys("boxes", manifest.boxes, BOXES)
    check_values("boxes", manifest.boxes or {}, BOXES)


def _check_states(manifest: Manifest) -> None:
    states = manifest.states or ()
    for position, state in enumerate(states):
        check_values(f"states[{position}]", vars(state), STATE)
    for key, others in (("name", ()), ("input", manifest.inputs), ("output", manifest.outputs)):
        names = [*(getattr(state, key) for state in states), *(tensor.name for tensor in others)]
        require(_are_unique(names), f"states: {key}", names, "each state needs a different one")
    require(
        not manifest.golden["top1"],
        "golden.top1",
        True,
        "must be false for a model with states, whose successive answers may be nearly tied",
    )


def _check_tensors(manifest: Manifest) -> None:
    """Check that the samples of a model with several inputs have one tensor for each input, in its shape."""
    raw, inputs, kind = manifest.raw, manifest.inputs, input_vector.KIND
    require(raw.kind == kind, "raw.kind", raw.kind, f"the model has {len(inputs)} inputs: a sample is of kind {kind}")
    tensors: Any = raw.tensors or ()
    require(len(tensors) > 1, "raw.tensors", len(tensors), f"a sample of kind {kind} has two or more")
    require(len(tensors) == len(inputs), "raw.tensors", len(tensors), f"the model has {len(inputs)} inputs")
    for position, (tensor, model) in enumerate(zip(tensors, inputs)):
        where = f"raw.tensors[{position}]"
        check_keys(where, tensor, RAW_TENSOR)
        check_values(where, tensor, RAW_TENSOR)
        _check_limits(f"{where}.range", tensor["range"], tensor["dtype"])
        expected = list(model.shape[1:])
        require(list(tensor["shape"]) == expected, f"{where}.shape", tensor["shape"], f"the model takes {expected}")
        # A model's integers are those of the sample, except in a TFLite file, whose bytes may have a scale.
        if model.dtype in (
            TOKEN_ID_DTYPES if manifest.target == "tflite" else (*TOKEN_ID_DTYPES, *input_vector.INTEGER_LIMITS)
        ):
            fits = tensor["dtype"] != "float32"
            require(fits, f"{where}.dtype", tensor["dtype"], f"the model takes whole numbers, {model.dtype}")
            _check_limits(f"{where}.range", tensor["range"], model.dtype)
    _need_names("raw.tensors", [each["name"] for each in tensors])
    width = input_vector.width([each["shape"] for each in tensors])
    require(raw.shape == (width,), "raw.shape", list(raw.shape), f"the tensors have {width} numbers")
    require(raw.dtype == "float32", "raw.dtype", raw.dtype, "joined tensors are float32")
    require(raw.range is None, "raw.range", raw.range, "each tensor has its own range")
    require(not manifest.preprocess, "preprocess", manifest.preprocess, "the network itself scales several tensors")


def _check_limits(where: str, limits: Any, dtype: str) -> None:
    """Check that a range lies within the limits of its dtype. Integers must have a range."""
    if dtype == "float32":
        largest = input_vector.LARGEST_FLOAT
        fits = limits is None or (-largest <= limits[0] and limits[1] <= largest)
        require(fits, where, limits, "must be numbers of float32")
        return
    require(limits is not None, where, limits, "whole numbers need [lowest, highest]")
    require(all(map(is_integer, limits)), where, limits, "must be whole numbers")
    lowest, highest = input_vector.INTEGER_LIMITS.get(
        dtype, (-input_vector.LARGEST_EXACT_INTEGER, input_vector.LARGEST_EXACT_INTEGER)
    )
    require(lowest <= limits[0] and limits[1] <= highest, where, limits, f"{dtype} has {lowest} to {highest} here")
