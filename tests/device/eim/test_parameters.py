"""What clients receive about a bundle, and which bundles the protocol cannot express."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.eim import parameters
from edgekit.runner import bundle
from edgekit.runner.bundle.manifest import Manifest, RawSpec, StateSpec
from edgekit.runner.errors import InputError
from tests.runner import flat

FIELDS = {
    "axis_count": int, "frequency": int, "has_anomaly": int, "image_channel_count": int, "image_input_frames": int,
    "image_input_height": int, "image_input_width": int, "image_resize_mode": str, "inferencing_engine": int,
    "input_features_count": int, "interval_ms": (int, float), "label_count": int, "labels": list, "model_type": str,
    "sensor": int, "slice_size": int, "use_continuous_mode": bool, "thresholds": list,
}  # fmt: skip
"""The types that the Rust and Node.js clients declare. Whole numbers of the Rust client have no sign."""


def manifest_of(path: Path, **changes: Any) -> Manifest:
    return replace(bundle.read(path).manifest, **changes)


@pytest.mark.parametrize("kind", ["image", "vector", "audio", "window", "boxes"])
def test_every_field_is_there_in_the_type_that_clients_declare(kind: str, kinds: dict[str, Path]) -> None:
    described = parameters.describe(manifest_of(kinds[kind]))
    found = described["model_parameters"]
    assert found.keys() == FIELDS.keys()
    for name, types in FIELDS.items():
        assert isinstance(found[name], types), name
        assert not isinstance(found[name], int) or found[name] >= 0, name
    assert described["project"].keys() == {"id", "owner", "name", "deploy_version"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("image", {"sensor": 3, "input_features_count": 60, "image_input_width": 10, "image_input_height": 6,
                   "image_channel_count": 3, "image_resize_mode": "squash", "model_type": "classification"}),
        ("audio", {"sensor": 1, "input_features_count": 400, "frequency": 8000, "interval_ms": 0.125}),
        ("window", {"sensor": 0, "input_features_count": 12, "axis_count": 3, "image_resize_mode": "none"}),
        ("boxes", {"model_type": "object_detection", "label_count": 3,
                   "thresholds": [{"id": 1, "type": "object_detection", "min_score": 0.4}]}),
    ],
)  # fmt: skip
def test_samples_are_described(kind: str, expected: dict[str, Any], kinds: dict[str, Path]) -> None:
    assert expected.items() <= parameters.describe(manifest_of(kinds[kind]))["model_parameters"].items()


@pytest.mark.parametrize(
    ("fit", "mode"), [("stretch", "squash"), ("crop", "fit-shortest"), ("letterbox", "fit-longest")]
)
def test_pictures_are_resized_as_the_bundle_does(fit: str, mode: str, kinds: dict[str, Path]) -> None:
    from edgekit.runner import input_path

    raw = RawSpec("image", (6, 10, 3), "uint8", input_path=tuple(input_path.picture_steps((6, 10, 3), fit)))
    found = parameters.describe(manifest_of(kinds["image"], raw=raw))
    assert found["model_parameters"]["image_resize_mode"] == mode


@pytest.mark.parametrize(
    ("version", "number"), [("1.2.3", 1002003), ("0.10.0-rc1", 10000), ("2026", 202000000), ("x", 1)]
)
def test_a_later_version_is_a_larger_number(version: str, number: int, kinds: dict[str, Path]) -> None:
    project = parameters.describe(manifest_of(kinds["vector"], version=version))["project"]
    assert project["deploy_version"] == number


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": "segmentation"}, "its task is segmentation, which"),
        ({"task": "keypoints"}, "its task is keypoints, which"),
        ({"raw": RawSpec("text", (8,), "int32", (0, 9))}, "its samples are texts"),
        ({"raw": RawSpec("tensors", (8,), "float32", tensors=({"name": "a", "shape": [8]},))}, "are several tensors"),
        ({"raw": flat.PIXELS}, "its samples are float32, but .* pixels of bytes"),
        ({"raw": RawSpec("image", (4, 4, 4), "uint8")}, r"the shape \[4, 4, 4\]"),
        ({"states": (StateSpec("h", (1, 4), "float32", "h0", "h1"),)}, "has states"),
    ],
)
def test_what_the_protocol_cannot_express_is_refused(
    changes: dict[str, Any], reason: str, kinds: dict[str, Path]
) -> None:
    with pytest.raises(InputError, match=f"{reason}.*; use edgekit serve instead"):
        parameters.check(manifest_of(kinds["image"], **changes))
