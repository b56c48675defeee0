"""What must hold in a manifest's `states`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.runner.bundle.manifest_rules import is_shape, need

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

DTYPES = ("float32", "float16", "int32", "int64")
"""Not int8: its output and its input may have other scales."""


def check(manifest: Manifest) -> None:
    """BundleError for the first state that is none."""
    states = manifest.states or ()
    for place, state in enumerate(states):
        where = f"states[{place}]"
        for key in ("name", "input", "output"):
            value = getattr(state, key)
            need(isinstance(value, str) and value and value.isprintable(), f"{where}.{key}", value, "must be text")
        need(is_shape(state.shape), f"{where}.shape", state.shape, "must list whole numbers above 0")
        need(state.dtype in DTYPES, f"{where}.dtype", state.dtype, f"known: {', '.join(DTYPES)}")
    for key, others in (("name", ()), ("input", manifest.inputs), ("output", manifest.outputs)):
        names = [*(getattr(state, key) for state in states), *(tensor.name for tensor in others)]
        need(len(set(names)) == len(names), f"states: {key}", names, "each wants one of its own")
    need(not manifest.golden["top1"], "golden.top1", True, "the steps of a stream may be near ties")
