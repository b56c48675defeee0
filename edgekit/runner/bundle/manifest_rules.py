"""What must hold in a manifest: each value by itself, and all of them together."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.runner.bundle import input_path_rules
from edgekit.runner.errors import BundleError, InputError

if TYPE_CHECKING:
    from typing import TypeGuard

    from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec

TARGETS = ("tflite", "openvino", "onnx")
TASKS = ("classification", "multi_label", "regression", "anomaly", "detection", "segmentation", "embedding", "raw")
ACTIVATIONS = ("softmax", "sigmoid", "none")
KINDS = {"image": 3, "vector": 1, "audio": 1, "window": 2, "text": 1, "tensors": 1}
LAYOUTS = {"NHWC": 4, "NCHW": 4, "NC": 2, "ANY": None}
TENSOR_DTYPES = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64")
IDS = ("int32", "int64")
"""Types of a model's input that takes token ids."""
LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
OTHERS = {ord(letter): None for letter in "._-"}
HEX = frozenset("0123456789abcdef")


def check(manifest: Manifest) -> None:
    """BundleError for the first thing that does not hold together."""
    for key in ("name", "version", "variant"):
        value = getattr(manifest, key)
        need(
            isinstance(value, str) and "/" not in value and is_member(value),
            key,
            value,
            "use letters, digits, '.', '_' and '-'",
        )
    need(manifest.target in TARGETS, "target", manifest.target, f"known: {', '.join(TARGETS)}")
    need(manifest.task in TASKS, "task", manifest.task, f"known: {', '.join(TASKS)}")
    for key in ("budget", "verdict", "provenance"):
        need(isinstance(getattr(manifest, key), dict), key, getattr(manifest, key), "must be an object")
    need(manifest.activation in ACTIVATIONS, "activation", manifest.activation, f"known: {', '.join(ACTIVATIONS)}")
    for key in ("labels", "model_files", "requirements", "architectures"):
        value = getattr(manifest, key)
        need(isinstance(value, list) and all(isinstance(each, str) for each in value), key, value, "must list text")
    _check_raw(manifest.raw)
    for key in ("inputs", "outputs"):
        tensors = getattr(manifest, key)
        for place, tensor in enumerate(tensors):
            _check_tensor(f"{key}[{place}]", tensor)
        names = [tensor.name for tensor in tensors]
        need(len(set(names)) == len(names), key, names, "tensors need names of their own")
    _check_members(manifest.members)
    _check_files(manifest)
    _check_fit(manifest)
    if manifest.smoothing is not None:
        _check_smoothing(manifest)


def check_keys(where: str, values: Mapping[str, Any], known: list[str]) -> None:
    """BundleError unless just the known keys are there."""
    unknown, missing = sorted(set(values) - set(known)), sorted(set(known) - set(values))
    if unknown or missing:
        raise BundleError(f"manifest.json: {where}: unknown keys {unknown}, missing keys {missing}")


def is_member(name: str) -> bool:
    """Whether a member may be called so: parts of letters, digits, '.', '_' and '-', none of them hidden."""
    parts = name.split("/")
    return all(part and part[0] in LETTERS and LETTERS.issuperset(part.translate(OTHERS)) for part in parts)


def _check_raw(raw: RawSpec) -> None:
    need(isinstance(raw.kind, str) and raw.kind in KINDS, "raw.kind", raw.kind, f"known: {', '.join(KINDS)}")
    need(is_shape(raw.shape) and len(raw.shape) == KINDS[raw.kind], "raw.shape", raw.shape, f"not a {raw.kind}")
    if raw.range is not None:
        pair = isinstance(raw.range, (list, tuple)) and len(raw.range) == 2 and all(map(is_number, raw.range))
        need(pair and raw.range[0] < raw.range[1], "raw.range", raw.range, "must be [lowest, highest]")
        need(raw.dtype in ("float32", "int32"), "raw.range", raw.range, "only float32 and int32 samples have one")
    rate = raw.sample_rate_hz
    if raw.kind == "audio":
        need(is_whole(rate) and rate > 0, "raw.sample_rate_hz", rate, "must be a whole number above 0")
        need(raw.dtype == "float32", "raw.dtype", raw.dtype, "audio is float32 from -1 to 1")
    else:
        need(rate is None, "raw.sample_rate_hz", rate, "only audio has one")
    if raw.columns is not None:
        _check_columns(raw)
    _check_ids(raw)
    try:
        input_path_rules.check(raw)
    except InputError as error:
        raise BundleError(f"manifest.json: {error}") from None


def _check_smoothing(manifest: Manifest) -> None:
    from edgekit.runner.bundle import smoothing_rules

    try:
        smoothing_rules.check(manifest.smoothing, manifest.task)
        smoothing_rules.check_kind(manifest.raw.kind)
    except InputError as error:
        raise BundleError(f"manifest.json: {error}") from None


def _check_ids(raw: RawSpec) -> None:
    """A text is token ids, and these are the one kind of sample in int32."""
    if raw.kind != "text":
        need(raw.dtype != "int32", "raw.dtype", raw.dtype, "only a text is int32")
        return
    need(raw.dtype == "int32", "raw.dtype", raw.dtype, "token ids are int32")
    ids: Any = raw.range
    whole = ids is not None and ids[0] == 0 and all(map(is_whole, ids))
    need(whole, "raw.range", ids, "must be [0, the highest token id]")


def _check_columns(raw: RawSpec) -> None:
    names: Any = raw.columns
    need(raw.kind in ("vector", "window"), "raw.columns", names, "only vectors and windows have them")
    text = isinstance(names, (list, tuple)) and all(isinstance(each, str) and each.isprintable() for each in names)
    need(text and all(names) and len(set(names)) == len(names), "raw.columns", names, "must list different names")
    need(len(names) == raw.shape[-1], "raw.columns", names, f"name each of the {raw.shape[-1]} channels or features")


def _check_tensor(where: str, spec: TensorSpec) -> None:
    need(isinstance(spec.name, str), f"{where}.name", spec.name, "must be text")
    need(spec.dtype in TENSOR_DTYPES, f"{where}.dtype", spec.dtype, f"known: {', '.join(TENSOR_DTYPES)}")
    need(
        isinstance(spec.layout, str) and spec.layout in LAYOUTS,
        f"{where}.layout",
        spec.layout,
        f"known: {', '.join(LAYOUTS)}",
    )
    sides = LAYOUTS[spec.layout]
    fits = is_shape(spec.shape) and sides in (None, len(spec.shape)) and spec.shape[0] == 1
    need(fits, f"{where}.shape", list(spec.shape), f"must be {spec.layout} with a batch of 1")


def _check_members(members: Any) -> None:
    need(isinstance(members, dict), "members", members, "must be an object")
    for name, facts in members.items():
        need(is_member(name), "members", name, "must be a plain relative name")
        need(name != "manifest.json", "members", name, "the manifest cannot list itself")
        need(isinstance(facts, dict), f"members.{name}", facts, "must be an object")
        check_keys(f"members.{name}", facts, ["bytes", "sha256"])
        size, sha = facts["bytes"], facts["sha256"]
        need(is_whole(size) and size >= 0, f"{name}.bytes", size, "must be a size")
        need(
            isinstance(sha, str) and len(sha) == 64 and HEX.issuperset(sha),
            f"{name}.sha256",
            sha,
            "must be 64 hex digits",
        )


def _check_files(manifest: Manifest) -> None:
    """Model files and golden vectors are named well, and listed once the members are."""
    golden = manifest.golden
    need(isinstance(golden, dict), "golden", golden, "must be an object")
    check_keys("golden", golden, ["inputs", "outputs", "atol", "top1"])
    atol = golden["atol"]
    need(is_number(atol) and atol >= 0, "golden.atol", atol, "must be a number from 0")
    need(isinstance(golden["top1"], bool), "golden.top1", golden["top1"], "must be true or false")
    vocabularies = [step["vocabulary"] for step in manifest.raw.steps if step["step"] == "tokenize"]
    need(manifest.model_files, "model_files", manifest.model_files, "name at least one")
    reference = [] if manifest.reference is None else [manifest.reference]
    for name in (*manifest.model_files, golden["inputs"], golden["outputs"], *vocabularies, *reference):
        need(isinstance(name, str) and is_member(name), "member name", name, "must be a plain relative name")
        need(not manifest.members or name in manifest.members, "members", name, "it is named but not listed")


def _check_fit(manifest: Manifest) -> None:
    """The steps turn the raw sample into the model's input, and the task fits its outputs."""
    from edgekit.runner.preprocess import steps

    need(isinstance(manifest.preprocess, list), "preprocess", manifest.preprocess, "must be a list of steps")
    if manifest.raw.kind == "window":
        dtypes = ("float32", manifest.input.dtype)
        need(manifest.raw.dtype in dtypes, "raw.dtype", manifest.raw.dtype, "windows are float32, or as the model's")
    takes_ids, dtype = manifest.input.dtype in IDS, manifest.input.dtype
    need(takes_ids == (manifest.raw.kind == "text"), "input.dtype", dtype, "int32 or int64 for a text only")
    try:
        shape = steps.check(manifest.preprocess, manifest.raw.shape, manifest.raw.dtype)
    except InputError as error:
        raise BundleError(f"manifest.json: {error}") from None
    for step in manifest.preprocess:
        if step["step"] == "log_mel":
            rate = manifest.raw.sample_rate_hz
            need(step["rate_hz"] == rate, "preprocess.rate_hz", step["rate_hz"], f"the sounds have {rate}")
    wanted = manifest.input.shape[1:]
    if manifest.input.layout == "NCHW":
        wanted = (*wanted[1:], wanted[0])
    need(shape == wanted, "preprocess", list(shape), f"makes another shape than the model's input {list(wanted)}")
    _check_task(manifest)


def _check_task(manifest: Manifest) -> None:
    task, labels = manifest.task, manifest.labels
    if task in ("raw", "embedding"):
        need(not labels, "labels", labels, f"the outputs of the task {task} have no labels")
        if task == "embedding":
            [output] = _one(manifest)
            need(output.layout == "NC", "outputs[0].layout", output.layout, "an embedding gives NC")
    elif task == "anomaly":
        _check_reconstruction(manifest)
    elif task == "detection":
        _check_detection(manifest)
    elif task == "segmentation":
        from edgekit.runner import masks

        masks.check(manifest.raw.shape, len(labels), [each.answer for each in manifest.outputs])
    else:
        [output] = _one(manifest)
        values = output.shape[-1]
        need(output.layout == "NC", "outputs[0].layout", output.layout, f"a {task} gives NC")
        need(len(labels) == values, "labels", len(labels), f"the model gives {values} values")
    need(all(map(str.isprintable, labels)), "labels", labels, "must be printable")
    if task != "classification":
        need(len(set(labels)) == len(labels), "labels", labels, f"the values of a {task} need names of their own")
        activations = {"multi_label": ("sigmoid", "none"), "detection": ("sigmoid",)}.get(task, ("none",))
        need(
            manifest.activation in activations, "activation", manifest.activation, f"{task}: {' or '.join(activations)}"
        )
        need(not manifest.golden["top1"], "golden.top1", True, f"a {task} has no first label")
    else:
        need(manifest.activation != "sigmoid", "activation", manifest.activation, "classes want softmax, or none")
    if task != "anomaly":
        need(manifest.threshold is None, "threshold", manifest.threshold, f"a {task} has none")
    if task != "detection":
        need(manifest.boxes is None, "boxes", manifest.boxes, f"a {task} has none")


def _one(manifest: Manifest) -> tuple[TensorSpec, ...]:
    """Its only output."""
    count = len(manifest.outputs)
    need(count == 1, "outputs", count, f"a model for the task {manifest.task} has one")
    return manifest.outputs


def _check_reconstruction(manifest: Manifest) -> None:
    """The output is the network's input again, in the network's own order: a picture's channels stand first."""
    wanted = manifest.input.shape[1:]
    if manifest.input.layout == "NHWC":
        wanted = (wanted[2], *wanted[:2])
    [output] = _one(manifest)
    need(output.answer == wanted, "outputs[0].shape", list(output.shape), f"needed [1, {wanted}]")
    need(len(manifest.labels) == 2, "labels", manifest.labels, "name the normal and the anomaly")
    threshold = manifest.threshold
    need(threshold is not None and is_number(threshold) and threshold >= 0, "threshold", threshold, "a number from 0")


def _check_detection(manifest: Manifest) -> None:
    """Points of grids over the picture, each with four distances and a logit for every class."""
    from edgekit.runner import boxes

    raw, shape = manifest.raw, manifest.output_shape
    need(raw.kind == "image", "raw.kind", raw.kind, "a detection takes pictures")
    inside = manifest.input.shape[1:3] if manifest.input.layout == "NHWC" else manifest.input.shape[2:4]
    need(
        inside == raw.shape[:2], "input.shape", list(inside), f"the sample has {list(raw.shape[:2])}: resize before it"
    )
    wanted = boxes.SIDES + len(manifest.labels)
    need(len(shape) == 2 and shape[1] == wanted, "outputs", list(shape), f"needed [points, {wanted}] in all")
    need(manifest.labels, "labels", manifest.labels, "name the classes")
    try:
        boxes.strides(raw.shape[:2], shape[0])
    except BundleError as error:
        raise BundleError(f"manifest.json: outputs: {error}") from None
    options = manifest.boxes
    need(isinstance(options, dict), "boxes", options, "must be an object")
    check_keys("boxes", options or {}, list(boxes.Options._fields))
    for key in ("least_probability", "overlap"):
        value = (options or {})[key]
        need(is_number(value) and 0 < value < 1, f"boxes.{key}", value, "must be a number between 0 and 1")
    most = (options or {})["most"]
    need(is_whole(most) and most > 0, "boxes.most", most, "must be a whole number above 0")


def is_shape(value: Any) -> bool:
    """Whether it lists whole numbers above 0."""
    return isinstance(value, (list, tuple)) and bool(value) and all(is_whole(each) and each > 0 for each in value)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    largest = sys.float_info.max  # a whole number may be beyond that
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -largest <= value <= largest


def need(holds: Any, key: str, value: Any, fix: str) -> None:
    """BundleError with key, value and fix, unless it holds."""
    if not holds:
        raise BundleError(f"manifest.json: {key}: got {str(value)[:200]!r}; {fix}")
