"""`edgekit export` itself: servers and options, folders that are taken, broken bundles, folders of bundles."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgekit.cli.app import app
from edgekit.runner import bundle
from edgekit.serve import export as servers
from tests.runner.conftest import WriteBundle, manifest_for, members_for, reference, samples
from tests.serve.export.conftest import Export, watching, written


def nothing_beside(out: Path, *expected: str) -> None:
    """No temporary folder was left beside the export."""
    assert sorted(path.name for path in out.parent.iterdir()) == sorted(expected)


def test_every_server_has_a_file_that_keeps_the_contract() -> None:
    assert servers.server_names() == ["eim", "frigate", "grafana", "kserve", "ovms", "prometheus", "tensorrt", "triton"]
    for name in servers.server_names():
        found = servers.server_module(name)
        assert found.HELP and not found.HELP.endswith(".")
        assert set(found.OPTIONS) <= set(servers.ExportRequest._fields)
        assert callable(found.export)


def test_a_misspelt_server_is_named(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    done = export("tritn", bundles["onnx"], tmp_path / "out")
    assert done.exit_code == 2
    assert 'did you mean "triton"?' in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["_folder", "..", "triton.py", ""])
def test_no_other_file_is_taken_for_a_server(
    name: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    assert export(name, bundles["onnx"], tmp_path / "out").exit_code == 2


@pytest.mark.parametrize("option", ["--image", "--storage-uri"])
def test_an_option_of_another_server_is_refused(
    option: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    done = export("triton", bundles["onnx"], tmp_path / "out", option, "x")
    assert done.exit_code == 2
    assert f"{option} x: is an option of kserve, not of triton" in done.stderr


@pytest.mark.parametrize("server", ["prometheus", "grafana"])
def test_who_watches_takes_no_bundle_and_the_folder_by_either_way(
    server: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    assert not servers.takes_bundles(server)
    done = export(server, bundles["onnx"], tmp_path / "out")
    assert done.exit_code == 2 and f"{server} takes no bundle" in done.stderr and not (tmp_path / "out").exists()
    assert watching(server, tmp_path / "one").exit_code == 0
    assert CliRunner().invoke(app, ["export", server, "--out", str(tmp_path / "two")]).exit_code == 0
    assert written(tmp_path / "one") == written(tmp_path / "two")
    done = CliRunner().invoke(app, ["export", server])
    assert done.exit_code == 2 and "OUT: is missing" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"), [(["triton"], "BUNDLE: is missing"), (["triton", "a.edge.zip"], "--out: is missing")]
)
def test_a_server_that_takes_bundles_needs_one_and_a_folder(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["export", *words])
    assert done.exit_code == 2 and message in done.stderr


def test_a_folder_that_holds_something_else_stays_as_it_is(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    done = export("triton", bundles["onnx"], out)
    assert done.exit_code == 2 and "is not an earlier export" in done.stderr
    assert written(out) == ["thesis.txt"]
    nothing_beside(out, "out")


def test_a_file_or_a_link_in_the_way_is_refused(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("file", "link"):
        assert export("triton", bundles["onnx"], tmp_path / name).exit_code == 2
    assert (tmp_path / "file").read_text() == "mine" and not written(tmp_path / "folder")


def test_an_empty_folder_is_filled(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    (tmp_path / "out").mkdir()
    assert export("triton", bundles["onnx"], tmp_path / "out").exit_code == 0
    nothing_beside(tmp_path / "out", "out")


def test_a_second_run_gives_the_same_bytes(bundles: dict[str, Path], tmp_path: Path, export: Export) -> None:
    out = tmp_path / "deep" / "out"
    found = []
    for _ in range(2):
        assert export("triton", bundles["tflite"], out).exit_code == 0
        found.append({name: (out / name).read_bytes() for name in written(out)})
    assert found[0] == found[1]
    nothing_beside(out, "out")


def test_another_export_replaces_the_earlier_one_whole(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    assert export("triton", bundles["tflite"], out).exit_code == 0
    assert export("tensorrt", bundles["onnx"], out).exit_code == 0
    assert not [name for name in written(out) if name.endswith((".py", ".pyz", ".pbtxt"))]
    nothing_beside(out, "out")


@pytest.mark.parametrize("change", ["edited", "added", "link"])
def test_an_export_that_somebody_changed_is_not_replaced(
    change: str, bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    assert export("triton", bundles["onnx"], out).exit_code == 0
    config = out / "tiny" / "config.pbtxt"
    if change == "edited":
        config.write_text(config.read_text() + "dynamic_batching { }\n")
    elif change == "added":
        (out / "notes.txt").write_text("mine")
    else:
        config.unlink()
        config.symlink_to("labels.txt")
    before = written(out)
    done = export("triton", bundles["onnx"], out)
    assert done.exit_code == 2 and "was changed after the earlier export" in done.stderr
    assert written(out) == before


def test_a_changed_bundle_is_refused_before_anything_is_written(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    data = bytearray(bundles["onnx"].read_bytes())
    data[len(data) // 2] ^= 1
    broken = tmp_path / "broken.edge.zip"
    broken.write_bytes(data)
    done = export("triton", broken, tmp_path / "out")
    assert done.exit_code in (4, 8) and done.stderr.startswith("edgekit: ")
    nothing_beside(tmp_path / "out", "broken.edge.zip")


def test_a_refusal_leaves_the_earlier_export_as_it_was(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "out"
    assert export("tensorrt", bundles["onnx"], out).exit_code == 0
    before = {name: (out / name).read_bytes() for name in written(out)}
    assert export("tensorrt", bundles["openvino"], out).exit_code == 5
    assert {name: (out / name).read_bytes() for name in written(out)} == before
    nothing_beside(out, "out")


def test_a_bundle_whose_golden_vectors_fail_is_refused(
    models: dict[str, object], write_bundle: WriteBundle, tmp_path: Path, export: Export
) -> None:
    wrong = write_bundle(models["onnx"], scores=reference(samples()) + 1.0)
    done = export("triton", wrong, tmp_path / "out")
    assert done.exit_code == 5 and "off by 1" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["absent.edge.zip", "empty"])
def test_a_path_without_a_bundle_is_refused(name: str, tmp_path: Path, export: Export) -> None:
    (tmp_path / "empty").mkdir()
    done = export("triton", tmp_path / name, tmp_path / "out")
    assert done.exit_code == 4 and str(tmp_path / name) in done.stderr


def test_bundles_of_a_folder_are_told_apart_by_their_targets(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    for key in ("onnx", "openvino", "tflite"):
        shutil.copy(bundles[key], folder)
    (folder / "decision.json").write_text("{}")
    assert export("triton", folder, tmp_path / "out").exit_code == 0
    models = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert models == ["tiny-onnx", "tiny-openvino", "tiny-tflite"]


def test_two_bundles_that_nothing_tells_apart_are_refused(
    bundles: dict[str, Path], tmp_path: Path, export: Export
) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    for name in ("a.edge.zip", "b.edge.zip"):
        shutil.copy(bundles["onnx"], folder / name)
    done = export("triton", folder, tmp_path / "out")
    assert done.exit_code == 2 and "tiny-onnx: two bundles" in done.stderr


@pytest.mark.parametrize("name", ["README.md", "config.json", "export.json"])
def test_a_model_that_is_called_as_a_file_of_the_export_is_refused(
    name: str, models: dict[str, object], tmp_path: Path, export: Export
) -> None:
    model, images = models["onnx"], samples()
    path = tmp_path / "odd.edge.zip"
    bundle.write(path, manifest_for(model, name=name), members_for(model, images, reference(images)))  # type: ignore[arg-type]
    done = export("ovms", path, tmp_path / "out")
    assert done.exit_code == 2 and name in done.stderr
