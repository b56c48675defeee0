"""`edgekit reproduce`: the same bytes from the bundle's own record, and never that word for anything else."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from edgekit.runner import bundle as bundles
from edgekit.runner.bundle import Bundle
from tests.conftest import FinishedRun, run_edgekit

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def original(tiny_run: FinishedRun) -> Path:
    return tiny_run.folder / "bundles" / "tiny-onnx-1.0.0.edge.zip"


@pytest.fixture(scope="module")
def rebuilt(original: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A whole rebuild in a folder of its own, and the output of the command."""
    out = tmp_path_factory.mktemp("reproduced")
    return out, run_edgekit("reproduce", str(original), "--out", str(out))


def changed(original: Path, folder: Path, rebuilt: Path, **provenance: Any) -> tuple[Path, Path]:
    """The bundle with another record, and a folder in which its rebuilding has nothing left to do but to compare."""
    bundle = bundles.read(original)
    manifest = dataclasses.replace(bundle.manifest, provenance={**bundle.manifest.provenance, **provenance})
    path = folder / original.name
    bundles.write(path, manifest, bundle.members)
    (home,) = (path for path in rebuilt.iterdir() if path.is_dir())
    shutil.copytree(home, folder / "out" / bundles.read(path).sha256[:16])
    return path, folder / "out"


def record(original: Path) -> dict[str, Any]:
    return bundles.read(original).manifest.provenance


def test_the_same_bytes_come_out(
    original: Path, rebuilt: tuple[Path, subprocess.CompletedProcess[str]], tiny_run: FinishedRun
) -> None:
    out, done = rebuilt
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reproduced bit for bit" in done.stdout
    for target in ("tflite", "openvino", "onnx"):
        (again,) = out.rglob(f"tiny-{target}-1.0.0.edge.zip")
        assert again.read_bytes() == (tiny_run.folder / "bundles" / again.name).read_bytes()


def test_the_recorded_decision_was_followed(rebuilt: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    (path,) = rebuilt[0].rglob("benchmark/evidence/decisions.json")
    decisions = [each for each in json.loads(path.read_text()) if each["decision"].startswith("winner of ")]
    assert len(decisions) == 3
    assert all(each["replayed"] for each in decisions)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("libraries", {"torch": "0.0.1"}, "library torch: 0.0.1 → "),
        ("code", {"distill": "0" * 64}, "code of edgekit's stage distill"),
        ("machine", {"instructions": ["none"]}, "machine, instructions: none → "),
        ("builders", {"nets_of_mine:mlp": "0" * 64}, "source of nets_of_mine:mlp (not found here)"),
    ],
)
def test_what_differs_is_named_and_not_called_reproduced(
    original: Path,
    rebuilt: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    key: str,
    value: dict[str, Any],
    message: str,
) -> None:
    path, out = changed(original, tmp_path, rebuilt[0], **{key: {**record(original)[key], **value}})
    done = run_edgekit("reproduce", str(path), "--out", str(out))
    assert done.returncode == 8, done.stdout + done.stderr
    assert message in done.stdout
    assert "NOT reproduced" in done.stderr
    assert f"manifest.json: provenance.{key}" in done.stdout
    assert "reproduced bit for bit" not in done.stdout
    assert "Traceback" not in done.stderr


def test_a_changed_model_is_named_by_its_member(
    original: Path, rebuilt: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    bundle: Bundle = bundles.read(original)
    model = bundle.manifest.model_files[0]
    path = tmp_path / original.name
    bundles.write(path, bundle.manifest, {**bundle.members, model: bundle.members[model] + b"\0"})
    (home,) = (path for path in rebuilt[0].iterdir() if path.is_dir())
    shutil.copytree(home, tmp_path / "out" / bundles.read(path).sha256[:16])
    done = run_edgekit("reproduce", str(path), "--out", str(tmp_path / "out"))
    assert done.returncode == 8
    assert f"differs: {model}: " in done.stdout


def test_other_data_stops_before_anything_is_trained(original: Path, tmp_path: Path) -> None:
    bundle = bundles.read(original)
    manifest = dataclasses.replace(bundle.manifest, provenance={**bundle.manifest.provenance, "data_digest": "0" * 64})
    path = tmp_path / original.name
    bundles.write(path, manifest, bundle.members)
    done = run_edgekit("reproduce", str(path), "--out", str(tmp_path / "out"))
    assert done.returncode == 4
    assert "the data here differs from the recorded data" in done.stderr
    assert not list((tmp_path / "out").rglob("*.ipynb"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--set", "prune.ratio=0.4"], 2, "a reproduction keeps every recorded option"),
        (["--set", "data.path=somewhere"], 2, "data.path"),
        (["--set", "model.weights"], 2, "write it as key=value"),
        (["--set", "model.weights=OTHER"], 2, "is not the file that was recorded"),
    ],
)
def test_the_record_cannot_be_overridden(
    original: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    save_file({"weight": np.zeros(1, np.float32)}, tmp_path / "other.safetensors")
    arguments = [each.replace("OTHER", str(tmp_path / "other.safetensors")) for each in arguments]
    done = run_edgekit("reproduce", str(original), "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bundle_without_a_record_is_refused(original: Path, tmp_path: Path) -> None:
    bundle = bundles.read(original)
    bundles.write(tmp_path / "a.edge.zip", dataclasses.replace(bundle.manifest, provenance={}), bundle.members)
    done = run_edgekit("reproduce", str(tmp_path / "a.edge.zip"), "--out", str(tmp_path))
    assert done.returncode == 8
    assert "its record lacks config" in done.stderr


@pytest.mark.parametrize("part", ["data", "model", "distill", "convert"])
def test_a_record_cannot_make_anything_be_called(original: Path, tmp_path: Path, part: str) -> None:
    mark = tmp_path / "called"
    call = {"kwargs": {"args": f"touch {mark}", "shell": True}}
    config = json.loads(json.dumps(record(original)["config"]))
    if part == "data":
        config["data"] = {"source": "python", "function": "subprocess:check_output", **call}
    elif part == "model":
        config["model"] = {"builder": "subprocess:check_output", **call}
    elif part == "convert":
        config["convert"] = {**config.get("convert", {}), "reference_preprocess": "subprocess:check_output"}
    else:
        config["distill"]["student"] = {"builder": "subprocess:check_output", **call}
    bundle = bundles.read(original)
    manifest = dataclasses.replace(bundle.manifest, provenance={**bundle.manifest.provenance, "config": config})
    bundles.write(tmp_path / original.name, manifest, bundle.members)
    done = run_edgekit("reproduce", str(tmp_path / original.name), "--out", str(tmp_path / "out"))
    assert done.returncode == 8
    assert "--allow subprocess:check_output" in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize("name", ["edgekit.models.resnet:nn", "edgekit.models.store:build", "edgekit.training.fit:fit"])
def test_only_reference_networks_count_as_edgekits_own(original: Path, tmp_path: Path, name: str) -> None:
    config = {**record(original)["config"], "model": {"builder": name, "kwargs": {}}}
    bundle = bundles.read(original)
    manifest = dataclasses.replace(bundle.manifest, provenance={**bundle.manifest.provenance, "config": config})
    bundles.write(tmp_path / original.name, manifest, bundle.members)
    done = run_edgekit("reproduce", str(tmp_path / original.name), "--out", str(tmp_path / "out"))
    assert done.returncode == 8
    assert f"--allow {name}" in done.stderr


@pytest.mark.parametrize(
    ("key", "value"), [("machine", []), ("libraries", [1]), ("measured", 5), ("measured", {"winners": 1})]
)
def test_a_record_of_another_shape_is_refused_at_once(original: Path, tmp_path: Path, key: str, value: Any) -> None:
    bundle = bundles.read(original)
    manifest = dataclasses.replace(bundle.manifest, provenance={**bundle.manifest.provenance, key: value})
    bundles.write(tmp_path / original.name, manifest, bundle.members)
    done = run_edgekit("reproduce", str(tmp_path / original.name), "--out", str(tmp_path / "out"))
    assert done.returncode == 8
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").rglob("*.ipynb"))


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"nothing")
    done = run_edgekit("reproduce", str(tmp_path / "a.zip"))
    assert done.returncode == 4
    assert "not a bundle" in done.stderr


def test_a_teachers_file_must_be_given_and_must_be_the_recorded_one(original: Path, tmp_path: Path) -> None:
    config = json.loads(json.dumps(record(original)["config"]))
    config["distill"]["teachers"] = [{"path": "expert.tflite", "sha256": "0" * 64}]
    bundle = bundles.read(original)
    manifest = dataclasses.replace(bundle.manifest, provenance={**bundle.manifest.provenance, "config": config})
    bundles.write(tmp_path / original.name, manifest, bundle.members)
    command = ["reproduce", str(tmp_path / original.name), "--out", str(tmp_path / "out")]
    absent = run_edgekit(*command)
    assert absent.returncode == 2
    assert "expert.tflite: no such file" in absent.stderr and "--set distill.teachers=" in absent.stderr
    (tmp_path / "expert.tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    another = run_edgekit(*command, "--set", f"distill.teachers={tmp_path}")
    assert another.returncode == 2
    assert "; give the file with that digest" in another.stderr
    assert "Traceback" not in absent.stderr + another.stderr
