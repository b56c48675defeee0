"""`python -m benchmarks.network_rows`: the page holds what was found, and the page in the docs is of these networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import network_page
from benchmarks.network_page import CALLED, PAGE, PRECISIONS, SHOWN
from benchmarks.networks import EVERY

NETWORKS = [name for group in SHOWN for name in group]


def times() -> dict[str, Any]:
    row = {
        "bytes": 54321,
        "p50": {"p50_ms": 0.25, "low_ms": 0.2, "high_ms": 0.3},
        "ratio": {"ratio": 1.25, "low": 1.2, "high": 1.3},
    }
    rows = {f"{network} {precision}": row for network in NETWORKS for precision in PRECISIONS}
    machine = {"cpu": "some", "cores": 2, "system": "Linux", "python": "3.11"}
    return {"machine": machine, "rounds": 30, "calls": 40, "rows": rows}


def test_every_network_has_a_name_and_can_be_made() -> None:
    assert set(NETWORKS) == set(CALLED) <= set(EVERY)


def test_the_page_tells_costs_ratios_and_what_was_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_page, "HOME", tmp_path)
    assert "Not timed yet: tflite, openvino, onnx." in network_page.text({})
    found = network_page.text({"tflite": times()})
    assert "Not timed yet: openvino, onnx." in found
    assert "none of them was trained" in found and "top-1" not in found
    row = {"test_samples": 10000, "epochs": 5, "train_samples": 9000, "test_accuracy": 0.4567}
    (tmp_path / "train-resnet8.json").write_text(json.dumps(row))
    found = network_page.text({"tflite": times()})
    assert "| ResNet-8 | 78,186 | 12.5 M | 54,321 | 45.7 % |" in found
    assert "| RepVGG 0.25, merged | 221,082 | 15.8 M | 54,321 | not trained |" in found
    assert "| ResNet-8 | 250 µs | 250 µs |" in found
    assert "| MCUNet-like | 1.25 (1.20–1.30) | 1.25 (1.20–1.30) |" in found


def test_the_page_in_the_docs_is_of_these_networks() -> None:
    said = PAGE.read_text()
    assert all(f"| {CALLED[network]} |" in said for network in NETWORKS)


def test_what_a_person_wrote_below_the_tables_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, words = tmp_path / "networks.md", f"{network_page.BY_HAND}\n\nOne is quick.\n"
    page.write_text(f"old tables\n\n{words}")
    monkeypatch.setattr(network_page, "HOME", tmp_path)
    monkeypatch.setattr(network_page, "PAGE", page)
    for _ in range(2):
        network_page.write()
        assert page.read_text() == f"{network_page.text({})}\n{words}"
