"""The list of bundles has three sizes: as sent, the model on disk, and the model compressed."""

from __future__ import annotations

from typing import Any, cast

from edgekit.report.sections import bundles


def test_a_bundle_stands_beside_its_model_on_disk_and_zipped() -> None:
    bundle = {"file": "a-tflite-1.edge.zip", "variant": "student-int8-tflite", "bytes": 142_923, "sha256": "ab" * 32}
    model = {"name": "student-int8-tflite", "bytes": 50_592, "zipped_bytes": 41_003}
    result = {"bundles": {"tflite": bundle}, "variants": [{"name": "torch-fp32", "bytes": 1}, model]}
    grid = bundles.page_grid(cast("Any", result))
    assert grid is not None
    assert dict(zip(grid.columns, grid.lines[0].cells, strict=True)) == {
        "target": "tflite",
        "file in bundles/": "a-tflite-1.edge.zip",
        "variant": "student-int8-tflite",
        "sent": "142,923",
        "model": "50,592",
        "zipped": "41,003",
        "sha256": "ab" * 32,
    }
    assert bundles.page_grid(cast("Any", {"bundles": {}, "variants": []})) is None
