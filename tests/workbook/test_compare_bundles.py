"""What `edgekit reproduce` calls the same: two bundles compared member by member, without rebuilding any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import bundle as bundles
from edgekit.runner.bundle import Bundle
from edgekit.workbook.reproduce import ReproductionReport, compare_members
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for, members_for, reference, samples

MEMBERS = 4


def write_bundle(folder: Path, model: bytes = b"weights", **changes: Any) -> Bundle:
    network = ModelFiles("onnx", {"model.onnx": model}, NCHW, SCORES, 1e-4)
    images = samples(4)
    path = folder / "made.edge.zip"
    bundles.write(path, manifest_for(network, **changes), members_for(network, images, reference(images)))
    return bundles.read(path)


def report(before: Bundle, now: Bundle) -> ReproductionReport:
    same = len(set(before.members.items()) & set(now.members.items()))
    return ReproductionReport(Path("before"), Path("now"), [], compare_members(before, now), same, [])


def test_the_same_bytes_are_reproduced(tmp_path: Path) -> None:
    again = report(write_bundle(tmp_path), write_bundle(tmp_path))
    assert again.reproduced
    assert (again.members, again.same) == ([], MEMBERS)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"model": b"other weights"}, ["model.onnx: ", "manifest.json: digests of the members"]),
        ({"labels": ["a", "b", "c"]}, ["manifest.json: labels"]),
        ({"provenance": {"data_digest": "1" * 64}}, ["manifest.json: provenance.data_digest"]),
    ],
)
def test_what_differs_is_named_and_never_called_reproduced(
    changes: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    result = report(write_bundle(tmp_path), write_bundle(tmp_path, **changes))
    assert not result.reproduced
    assert [line[: len(start)] for line, start in zip(result.members, names, strict=True)] == names
