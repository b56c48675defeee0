"""What must hold where a model has several inputs: a sample of as many tensors, as the model takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.runner.bundle.manifest_rules import check_keys, is_number, is_shape, is_whole, need
from edgekit.runner.input_vector import DTYPES, KIND, LARGEST, LARGEST_FLOAT, LIMITS, width

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, TensorSpec

KEYS = ["name", "shape", "dtype", "range"]


def check(manifest: Manifest) -> None:
    """BundleError for the first tensor that does not hold together."""
    raw, inputs = manifest.raw, manifest.inputs
    need(raw.kind == KIND, "raw.kind", raw.kind, f"the model has {len(inputs)} inputs: a sample is of kind {KIND}")
    tensors: Any = raw.tensors or ()
    need(len(tensors) > 1, "raw.tensors", len(tensors), f"a sample of kind {KIND} has two or more")
    need(len(tensors) == len(inputs), "raw.tensors", len(tensors), f"the model has {len(inputs)} inputs")
    for place, tensor in enumerate(tensors):
        _check_tensor(f"raw.tensors[{place}]", tensor)
        wanted = list(inputs[place].shape[1:])
        need(list(tensor["shape"]) == wanted, f"raw.tensors[{place}].shape", tensor["shape"], f"the model: {wanted}")
        _check_model(f"raw.tensors[{place}]", tensor, inputs[place], manifest.target)
    names = [each["name"] for each in tensors]
    need(len(set(names)) == len(names), "raw.tensors", names, "tensors need names of their own")
    whole = width([each["shape"] for each in tensors])
    need(raw.shape == (whole,), "raw.shape", list(raw.shape), f"the tensors have {whole} numbers")
    need(raw.dtype == "float32", "raw.dtype", raw.dtype, "joined tensors are float32")
    need(raw.range is None, "raw.range", raw.range, "each tensor has its own range")
    need(not manifest.preprocess, "preprocess", manifest.preprocess, "the network itself scales several tensors")


def _check_tensor(where: str, tensor: Any) -> None:
    need(isinstance(tensor, dict), where, tensor, "must be an object")
    check_keys(where, tensor, KEYS)
    name, dtype, limits = tensor["name"], tensor["dtype"], tensor["range"]
    need(isinstance(name, str) and name and name.isprintable(), f"{where}.name", name, "must be text")
    need(is_shape(tensor["shape"]), f"{where}.shape", tensor["shape"], "must list whole numbers above 0")
    need(dtype in DTYPES, f"{where}.dtype", dtype, f"known: {', '.join(DTYPES)}")
    is_float = dtype == "float32"
    if limits is None:
        need(is_float, f"{where}.range", None, "whole numbers need [lowest, highest]")
        return
    pair = isinstance(limits, (list, tuple)) and len(limits) == 2 and all(map(is_number, limits))
    need(pair and limits[0] <= limits[1], f"{where}.range", limits, "must be [lowest, highest]")
    if is_float:
        fits = limits[0] >= -LARGEST_FLOAT and limits[1] <= LARGEST_FLOAT
        need(fits, f"{where}.range", limits, "must be numbers of float32")
    else:
        need(all(map(is_whole, limits)), f"{where}.range", limits, "must be whole numbers")
        _check_inside(where, limits, dtype)


def _check_model(where: str, tensor: Any, model: TensorSpec, target: str) -> None:
    """A model's integers are those of the sample, unless a TFLite file may have a scale for them."""
    wide = model.dtype in ("int32", "int64")
    if not wide and (model.dtype not in LIMITS or target == "tflite"):
        return
    fits = tensor["dtype"] != "float32"
    need(fits, f"{where}.dtype", tensor["dtype"], f"the model takes whole numbers, {model.dtype}")
    _check_inside(where, tensor["range"], model.dtype)


def _check_inside(where: str, limits: Any, dtype: str) -> None:
    lowest, highest = LIMITS.get(dtype, (-LARGEST, LARGEST))
    fits = lowest <= limits[0] and limits[1] <= highest
    need(fits, f"{where}.range", limits, f"{dtype} has {lowest} to {highest} here")
