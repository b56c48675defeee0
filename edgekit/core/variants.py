"""Read and open variants, which `convert` records and which `benchmark` and `bundle` use."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.core.artifacts import Artifact
from edgekit.core.execution import timed_call
from edgekit.core.schema.conversion import BoundaryAgreement, RedundantOperator
from edgekit.runner.backends import Backend, open_backend
from edgekit.runner.bundle.manifest import TensorSpec, combined_input
from edgekit.runner.native_stderr import quiet_native

if TYPE_CHECKING:
    import numpy as np

VARIANTS_FILE = "variants.json"
INTEGER_PRECISIONS = ("int8", "dynamic", "int4", "int4_dense", "int16x8")
"""Precisions whose outputs differ a little between processors, because their kernels round differently."""


@dataclass(frozen=True)
class Variant:
    """One deployable candidate: model × precision × target. `files` are members of the convert artifact.

    `folding` says in words whether preprocessing steps were folded into the file, and `sparse_weights` whether its
    weights were stored as sparse tensors. Either is empty if the config did not request it. `head` says how the outputs
    of a published detector become boxes, as in a bundle's manifest.
    """

    name: str
    model: str
    precision: str
    method: str
    target: str
    files: tuple[str, ...]
    bytes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    float_ops: tuple[str, ...]
    not_offered: tuple[str, ...]
    quantization: dict[str, Any] | None
    boundaries: tuple[BoundaryAgreement, ...]
    debris: tuple[RedundantOperator, ...]
    folding: str = ""
    sparse_weights: str = ""
    head: dict[str, Any] | None = None

    @property
    def uses_integers(self) -> bool:
        """Whether the variant computes with integers, at least in part."""
        return self.precision in INTEGER_PRECISIONS

    @property
    def input(self) -> TensorSpec:
        """The variant's only input. Several inputs are concatenated to one (`runner/input_vector.py`)."""
        return combined_input(self.inputs)


def read_variants(convert: Artifact) -> list[Variant]:
    """Return every variant of a convert artifact, in the order of conversion."""
    return [_variant(fields) for fields in json.loads(convert.file(VARIANTS_FILE).read_text(encoding="utf-8"))]


def read_model_files(convert: Artifact, variant: Variant) -> dict[str, bytes]:
    """Return the variant's files by base name, each checked against its recorded digest."""
    return {name.rsplit("/", 1)[-1]: convert.file(name).read_bytes() for name in variant.files}


def open_variant(convert: Artifact, variant: Variant, threads: int = 1, *, converts_head: bool = True) -> Backend:
    """Open the variant with the runner's own backend, as on a device.

    Without `converts_head`, the outputs of a published detector stay as they are in its file.
    """
    files, head = read_model_files(convert, variant), variant.head if converts_head else None
    with quiet_native():
        return open_backend(variant.target, files, variant.inputs, variant.outputs, threads, head=head)


def variant_call(convert: Artifact, variant: Variant, x: np.ndarray, threads: int = 1) -> Callable[[], np.ndarray]:
    """Return a function that calls the opened variant with `x`, the float32 input of one sample, for timing."""
    return timed_call(open_variant(convert, variant, threads), x)


def zipped_size(contents: Iterable[bytes]) -> int:
    """Return the compressed size of the files with zlib at level 9, as in a download or on a compressed disk.

    A bundle stores files uncompressed. A different zlib may compress slightly better.
    """
    return sum(len(zlib.compress(content, 9)) for content in contents)


def _variant(fields: dict[str, Any]) -> Variant:
    return Variant(
        **{
            **fields,
            "files": tuple(fields["files"]),
            "inputs": tuple(TensorSpec(**each) for each in fields["inputs"]),
            "outputs": tuple(TensorSpec(**each) for each in fields["outputs"]),
            "float_ops": tuple(fields["float_ops"]),
            "not_offered": tuple(fields["not_offered"]),
            "boundaries": tuple(fields["boundaries"]),
            "debris": tuple(fields["debris"]),
        }
    )
