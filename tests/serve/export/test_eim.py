"""`edgekit export eim`: Edge Impulse's own clients start the program and get the answers of the bundle."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ConversionError
from edgekit.device.eim import MEMBER, parameters, results
from edgekit.runner import input_path, load
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.serve.export import eim
from edgekit.serve.export._subjects import ExportRequest, read_bundles
from tests import requirements
from tests.device.eim.running import Client, ended, features
from tests.docs.pages import blocks
from tests.runner import flat
from tests.serve.export import detectors
from tests.serve.export.conftest import Export, written

GUIDE = requirements.ROOT / "docs" / "how-to" / "hand-over.md"
SCRIPTS = Path(__file__).parents[2] / "device" / "eim"
ENVIRONMENT = {**os.environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}
"""With the Python of the tests as `python3`."""
BRACES = ["{", '"}', "größer"]
"""Labels that a client which counts braces splits wrongly."""


def export_one(export: Export, bundle: Path, folder: Path) -> Path:
    """The program of a bundle."""
    done = export("eim", bundle, folder)
    assert done.exit_code == 0, done.stderr
    [program] = folder.glob("*.eim")
    return program


def expected(bundle: Path, samples: np.ndarray) -> list[dict[str, Any]]:
    """The results for what `edgerun predict` answers."""
    model = load(bundle, trial=False)
    limit = parameters.threshold(model.manifest)
    answers = [model.predict(sample, top_k=max(1, len(model.manifest.labels))) for sample in samples]
    return [results.to_result(each, model.manifest, limit.value if limit else 0.0) for each in answers]


def ask(command: list[Any], folder: Path, program: Path, samples: list[Any], kind: str) -> dict[str, Any]:
    """What a client's script prints."""
    (folder / "samples.json").write_text(json.dumps(samples))
    whole = [str(part) for part in [*command, program, folder / "samples.json", kind]]
    environment = {**ENVIRONMENT, "NODE_PATH": str(requirements.ROOT / "build" / "eim" / "node_modules")}
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def client(name: str) -> list[Any]:
    """The command of a real client."""
    if name == "node":
        node = requirements.program("node", required_in_ci=False)
        requirements.environment("build/eim/node_modules/edge-impulse-linux/package.json", required_in_ci=False)
        return [node, SCRIPTS / "node_client.js"]
    return [requirements.environment("build/eim/bin/python"), SCRIPTS / "python_client.py"]


def test_the_program_needs_only_its_file(tmp_path: Path, export: Export) -> None:
    bundle = detectors.write(tmp_path)
    program = export_one(export, bundle, tmp_path / "out")
    assert written(tmp_path / "out") == ["README.md", "cells.eim", "export.json"]
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    with zipfile.ZipFile(program) as archive:
        assert archive.read(MEMBER) == bundle.read_bytes()
    moved = tmp_path / "elsewhere.eim"
    moved.write_bytes(program.read_bytes())
    bundle.unlink()
    command = [sys.executable, "-I", str(moved), str(tmp_path / "s")]
    with subprocess.Popen(command, cwd="/", stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "s").is_socket():
            assert process.poll() is None
        with Client(tmp_path / "s") as connection:
            assert connection.ask(hello=1)["project"]["name"] == "cells"
        assert ended(process) == (0, "")


def test_a_second_export_gives_the_same_bytes(tmp_path: Path, export: Export) -> None:
    bundle = detectors.write(tmp_path)
    programs = [export_one(export, bundle, tmp_path / name).read_bytes() for name in ("one", "two")]
    assert programs[0] == programs[1]


def test_the_info_is_what_clients_receive(tmp_path: Path, export: Export) -> None:
    bundle = detectors.write(tmp_path)
    program = export_one(export, bundle, tmp_path / "out")
    done = subprocess.run([program, "--print-info"], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == parameters.describe(load(bundle, trial=False).manifest)


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["shm", "json"])
@pytest.mark.parametrize("name", ["python", "node"])
@pytest.mark.parametrize("what", ["boxes", "image", "vector", "audio", "window"])
def test_real_clients_get_the_answers_of_the_bundle(
    what: str, name: str, kind: str, tmp_path: Path, export: Export
) -> None:
    command = client(name)
    if what == "boxes":
        bundle, samples = detectors.write(tmp_path), detectors.pictures(3)
    else:
        raw = {"image": flat.PICTURE, "vector": flat.VECTOR, "audio": flat.SOUND, "window": flat.WINDOW}[what]
        bundle, samples = flat.write(tmp_path / "b.edge.zip", raw, labels=BRACES), flat.examples(raw, 3)
        if what == "audio":
            samples = np.rint(samples * 32767).astype(np.float32) / np.float32(32768)
    program, raw = export_one(export, bundle, tmp_path / "out"), load(bundle, trial=False).manifest.raw
    values = [features(sample, raw) for sample in samples]
    found = ask(command, tmp_path, program, [*values, [*values[0][:-1], None if name == "node" else "x"]], kind)
    assert found["results"][:-1] == expected(bundle, samples)
    assert found["code"] == 0


@pytest.mark.processes
@pytest.mark.parametrize("name", ["python", "node"])
def test_real_clients_pass_on_what_is_wrong(name: str, tmp_path: Path, export: Export) -> None:
    bundle = flat.write(tmp_path / "b.edge.zip", flat.VECTOR)
    command, program = client(name), export_one(export, bundle, tmp_path / "out")
    found = ask(command, tmp_path, program, [[0.5] * 4, [7.0] * 5, [0.5] * 5], "json")
    assert found["results"][0] == "classify: got 4 features; the bundle takes 5"
    assert "from 7 to 7" in found["results"][1] and "classification" in found["results"][2]
    data = bytearray(program.read_bytes())
    place = data.index(b"manifest.json", data.index(MEMBER.encode()))
    data[place + 100] ^= 1
    program.write_bytes(data)
    damaged = ask(command, tmp_path, program, [], "json")["hello"]
    assert "holds no bundle (Bad CRC-32" in damaged and damaged.endswith("export it again")


@pytest.mark.processes
def test_the_example_of_the_guide_runs(tmp_path: Path, export: Export) -> None:
    python, _ = client("python")
    bundle = detectors.write(tmp_path)
    export_one(export, bundle, tmp_path / "for-eim")
    [block] = [each for each in blocks(GUIDE) if each.title == "count_cells.py"]
    (tmp_path / "pyaudio.py").touch()  # the package imports it, but only microphones need it
    done = subprocess.run(
        [python, "-c", block.text], capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    sample = np.full((detectors.SIDE, detectors.SIDE, 3), (0x33, 0x66, 0x99), np.uint8)
    assert ast.literal_eval(done.stdout) == expected(bundle, sample[None])[0]["bounding_boxes"]


@pytest.mark.processes
@pytest.mark.parametrize("fit", ["stretch", "letterbox", "crop"])
def test_a_picture_of_the_right_size_is_the_sample_of_the_bundle(fit: str, tmp_path: Path, export: Export) -> None:
    steps = tuple(input_path.picture_steps((64, 64, 3), fit))
    bundle = detectors.write(tmp_path, raw=RawSpec("image", (64, 64, 3), "uint8", input_path=steps))
    program, samples = export_one(export, bundle, tmp_path / "out"), detectors.pictures(2)
    found = ask(client("python"), tmp_path, program, samples.tolist(), "image")
    assert found["results"] == expected(bundle, samples)


def test_what_the_protocol_cannot_express_is_refused(tmp_path: Path, export: Export) -> None:
    bundle = flat.write(tmp_path / "b.edge.zip", flat.PIXELS)
    done = export("eim", bundle, tmp_path / "out")
    assert done.exit_code == 5 and done.stderr.count("\n") == 1
    assert f"{bundle}: its samples are float32, but Edge Impulse's clients send pixels of bytes" in done.stderr
    assert not (tmp_path / "out").exists()
    [subject] = read_bundles(detectors.write(tmp_path))
    facts = replace(subject.manifest, task="segmentation")
    changed = subject._replace(bundle=subject.bundle._replace(manifest=facts))
    with pytest.raises(ConversionError, match="its task is segmentation"):
        eim.export([changed], ExportRequest())


def test_a_device_in_signed_mode_needs_the_signed_bundle(tmp_path: Path, export: Export) -> None:
    program = export_one(export, detectors.write(tmp_path), tmp_path / "out")
    (tmp_path / "home" / "trust").mkdir(parents=True)
    environment = {**ENVIRONMENT, "EDGERUN_HOME": str(tmp_path / "home")}
    done = subprocess.run([program, "--print-info"], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 8 and "start edgerun eim with the signed bundle" in done.stderr


def test_the_readme_says_what_clients_send_and_how_pictures_differ(tmp_path: Path, export: Export) -> None:
    steps = tuple(input_path.picture_steps((64, 64, 3), "letterbox", fill=114))
    bundle = detectors.write(tmp_path, raw=RawSpec("image", (64, 64, 3), "uint8", input_path=steps))
    export_one(export, bundle, tmp_path / "out")
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "Features: 4096, a number 0xRRGGBB for each pixel" in readme
    assert "grey value 114, but those of clients are black" in readme
