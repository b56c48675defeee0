"""The commands on bundles of several inputs: what they answer, list and refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import load
from edgekit.runner.cli import main
from edgekit.runner.errors import InputError
from tests.runner import several
from tests.runner.several import TARGETS, THREE

Captured = pytest.CaptureFixture[str]
SAMPLES = several.samples(THREE, 5, seed=21)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {target: several.write(tmp_path_factory.mktemp(target), target) for target in TARGETS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five samples, and among them one out of range, one of other tensors and one that is torn."""
    home = tmp_path / "samples"
    home.mkdir()
    for number, sample in enumerate(SAMPLES):
        (home / f"{number}.npz").write_bytes(several.npz(sample, compressed=number % 2 == 1))
    (home / "1-range.npz").write_bytes(several.npz({**SAMPLES[0], "ids": np.full(4, 12)}))
    (home / "2-names.npz").write_bytes(several.npz({"picture": SAMPLES[0]["picture"]}))
    (home / "3-torn.npz").write_bytes(several.npz(SAMPLES[0])[:200])
    return home


def run_cli(capsys: Captured, code: int, *arguments: object) -> tuple[str, str]:
    assert main([str(each) for each in arguments]) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_is_one_sample(target: str, packed: dict[str, Path], folder: Path, capsys: Captured) -> None:
    out, err = run_cli(capsys, 0, "predict", packed[target], folder / "0.npz", "--json", "--no-trial")
    answer = json.loads(out)
    np.testing.assert_allclose(answer["output"], several.answer(THREE, SAMPLES[0]), atol=1e-4)
    assert answer["input"] == str(folder / "0.npz") and err == ""
    out, _ = run_cli(capsys, 0, "predict", packed[target], folder / "1.npz", "--strict")
    assert out.startswith(f"{folder / '1.npz'}: float32[3], from ")


def rows(out: str) -> dict[str, dict[str, Any]]:
    return {Path(each["input"]).name: each for each in map(json.loads, out.splitlines())}


@pytest.mark.parametrize("batch", [(), ("--batch", "2"), ("--batch", "3")])
def test_a_bad_file_of_a_folder_keeps_no_other_from_its_answer(
    batch: tuple[str, ...], packed: dict[str, Path], folder: Path, capsys: Captured
) -> None:
    out, err = run_cli(capsys, 4, "predict", packed["openvino"], folder, "--json", "--no-trial", *batch)
    found = rows(out)
    assert len(found) == 8
    for number, sample in enumerate(SAMPLES):
        np.testing.assert_allclose(found[f"{number}.npz"]["output"], several.answer(THREE, sample), atol=1e-4)
    messages = [found[name]["error"].partition("npz: ")[2] for name in ("1-range.npz", "2-names.npz", "3-torn.npz")]
    assert messages[0].startswith("sample: tensor ids: values from 12 to 12; the bundle takes 0 to 9")
    assert messages[1] == "tensors: got picture; give picture, ids, zoom"
    assert messages[2].startswith("not an .npz of plain arrays")
    assert err.splitlines()[-1] == "edgerun: 3 of 8 inputs got no answer" and len(err.splitlines()) == 4


@pytest.mark.parametrize("target", TARGETS)
def test_info_lists_each_tensor(target: str, packed: dict[str, Path], capsys: Captured) -> None:
    out, _ = run_cli(capsys, 0, "info", packed[target])
    assert (
        "takes       picture float32[2, 3, 1]\n"
        "            ids int32[4] from 0 to 9\n"
        "            zoom float32[1] from 0.5 to 4.0\n"
        "from a file read_tensors\n"
        "preprocess  none\n"
    ) in out
    listed = json.loads(run_cli(capsys, 0, "info", packed[target], "--json")[0])
    assert [each["name"] for each in listed["raw"]["tensors"]] == ["picture", "ids", "zoom"]


def test_the_doctor_says_which_files_it_takes(packed: dict[str, Path], capsys: Captured) -> None:
    out, _ = run_cli(capsys, 0, "doctor", packed["onnx"], "--input", "one.npz")
    assert "takes tensors\n" in out and "input-unreadable" not in out
    out, _ = run_cli(capsys, 5, "doctor", packed["onnx"], "--input", "one.png")
    assert (
        "error    one.png: .png is not supported; .npy, .npz are  [input-unreadable]\n    fix  save it as .npz\n" in out
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_bundle_is_verified_proven_and_timed(target: str, packed: dict[str, Path], capsys: Captured) -> None:
    assert "i.npy " in run_cli(capsys, 0, "verify", packed[target])[0]
    assert "selftest    passed" in run_cli(capsys, 0, "selftest", packed[target])[0]
    timed = json.loads(run_cli(capsys, 0, "bench", packed[target], "--calls", 20, "--json", "--no-trial")[0])
    assert timed["execute"]["p50_ms"] > 0 and timed["predict"]["p50_ms"] >= timed["execute"]["p50_ms"]


def test_every_way_to_run_it_is_compared(packed: dict[str, Path], capsys: Captured) -> None:
    ways = json.loads(run_cli(capsys, 0, "bench", packed["onnx"], "--compare", "--threads", 1, "--json")[0])["ways"]
    assert {way["interpreter"] for way in ways} == {"onnxruntime", "openvino"} and not any(way["fault"] for way in ways)


@pytest.mark.parametrize(
    "stream", [("csv",), ("s16le",), ("f32le", "--hop", "2"), ("wav",), ("rgb24", "--size", "4x4")], ids="-".join
)
def test_a_stream_is_refused_in_one_line(stream: tuple[str, ...], packed: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "edgekit.runner", "predict", str(packed["onnx"]), "--no-trial", "--stream"]
    done = subprocess.run([*command, *stream], input=bytes(4096), capture_output=True, timeout=120, check=False)
    messages = done.stderr.decode()
    assert done.returncode == 4 and done.stdout == b"" and messages.count("\n") == 1
    assert "the bundle takes tensors float32[11], " in messages


def test_a_stream_of_mappings_is_refused(packed: dict[str, Path]) -> None:
    model = load(packed["onnx"], trial=False, interpreter="onnxruntime")
    with pytest.raises(InputError, match=r"the bundle takes tensors float32\[11\], neither sound nor rows"):
        model.stream(iter(SAMPLES))


def test_nothing_is_drawn(packed: dict[str, Path], folder: Path, tmp_path: Path, capsys: Captured) -> None:
    out, err = run_cli(capsys, 4, "predict", packed["onnx"], folder / "0.npz", "--draw", tmp_path / "drawn.png")
    assert out == "" and err.startswith("edgerun: --draw: ") and err.count("\n") == 1
    assert not (tmp_path / "drawn.png").exists()
