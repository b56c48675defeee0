"""Seeded faults: what edgekit's own checks find, what they blame, and that nothing is blamed without a fault.

`pytest -m numerics tests/numerics -s` prints the table.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from clean_pipeline import Clean, converted, data, trained
from faults import FAULTS, LEAKS, Fault, ends, files

from edgekit.core.errors import EdgekitError
from edgekit.models import store

pytestmark = pytest.mark.numerics

NETWORKS = {
    "resnet8": ("edgekit.models.resnet:resnet8", {"width": 8}),
    "ds_cnn": ("edgekit.models.ds_cnn:ds_cnn", {"width": 16}),
    "mobilenet_v1": ("edgekit.models.mobilenet_v1:mobilenet_v1", {"alpha": 0.125}),
    "mobilenet_v2": ("edgekit.models.mobilenet_v2:mobilenet_v2", {"alpha": 0.1, "last": 64}),
}


def error_message(fault: Fault, clean: Clean) -> str:
    """What the checks say of it, nothing where they let it pass."""
    try:
        fault.check(clean)
    except EdgekitError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def messages(clean: Clean) -> dict[str, str]:
    return {fault.name: error_message(fault, clean) for fault in FAULTS}


def test_the_clean_pipeline_raises_nothing(clean: Clean) -> None:
    ends(clean)
    ends(clean, reference_preprocess="training:right")
    for target in ("onnx", "openvino", "tflite"):
        files(clean, target, "int8", None)


def test_of_the_seeded_faults_nearly_all_are_found_and_rightly_attributed(messages: dict[str, str]) -> None:
    found = {fault.name for fault in FAULTS if messages[fault.name]}
    right = {fault.name for fault in FAULTS if re.search(fault.expected, messages[fault.name])}
    print(f"\n{len(FAULTS)} faults, {len(found)} detected, {len(right)} rightly attributed")
    for fault in FAULTS:
        message = messages[fault.name] or "not detected"
        print(f"{fault.name} | {fault.name in found} | {fault.name in right} | {message} | {fault.expected}")
    assert len(FAULTS) >= 30
    assert len(found) >= len(FAULTS) - 2, {fault.name for fault in FAULTS} - found
    assert len(right) >= len(FAULTS) - 3, found - right


def test_leaks_are_found_always(messages: dict[str, str]) -> None:
    assert len(LEAKS) >= 5
    for fault in LEAKS:
        assert re.search(fault.expected, messages[fault.name]), fault.name


@pytest.mark.parametrize("name", NETWORKS)
def test_no_reference_network_is_blamed(name: str, tmp_path: Path) -> None:
    builder, options = NETWORKS[name]
    given: Any = data()
    module, spec = trained(given, builder, **options)
    made = {}
    for target in ("onnx", "openvino", "tflite"):
        for precision, one in converted(tmp_path, given, module, spec, target, ("fp32", "fp16", "int8")).items():
            made[target, precision] = one
    clean = Clean(given, store.load(tmp_path / "model")[0], spec, tmp_path / "model", made, tmp_path)
    ends(clean)
    for target, precision in made:
        files(clean, target, precision, None)
