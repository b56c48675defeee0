from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.device.measure import conditions
from edgekit.runner.cli import main

from .conftest import LABELS, NCHW, SCORES, ModelFiles, WriteBundle, onnx_model, reference, samples


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "sample.png"
    Image.fromarray(samples()[0][..., 0]).save(path)
    return path


@pytest.fixture
def array(tmp_path: Path) -> Path:
    path = tmp_path / "sample.npy"
    np.save(path, samples()[0])
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(each) for each in arguments]) == 0
    captured = capsys.readouterr()
    return captured.out


def refusal(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """The one line on stderr; nothing may look like an answer."""
    assert main([str(each) for each in arguments]) == code
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("edgerun: ")
    assert "Traceback" not in captured.err
    return lines[0]


def test_verify_lists_members_and_digest(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "verify", bundles["openvino"])
    for name in ("model.xml", "model.bin", "golden/inputs.npy", "README.md"):
        assert name in text
    facts = json.loads(answer(capsys, "verify", bundles["openvino"], "--json"))
    assert facts["sha256"] in text
    assert facts["members"]["README.md"]["bytes"] == 16


def test_info_says_what_it_takes_and_gives(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "info", bundles["tflite"])
    for word in ("tiny 1.2.0", "tflite", "uint8[8, 8, 1]", "scale", "circle, square, star", "numpy"):
        assert word in text
    assert json.loads(answer(capsys, "info", bundles["tflite"], "--json"))["labels"] == LABELS


@pytest.mark.parametrize("key", ["tflite", "tflite-int8", "openvino", "onnx"])
def test_selftest(key: str, bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "selftest", bundles[key], "--threads", 2)
    assert "passed" in text and "of 16 golden samples" in text
    report = json.loads(answer(capsys, "selftest", bundles[key], "--json"))
    assert report["ok"] and report["version"] in text and report["interpreter"] in text


def test_a_failed_selftest_is_exit_code_5(write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str]) -> None:
    other = ModelFiles(
        "onnx", {"model.onnx": onnx_model(bias=np.array([9.0, 0.0, 0.0], np.float32))}, NCHW, SCORES, 1e-4
    )
    assert main(["selftest", str(write_bundle(other))]) == 5
    captured = capsys.readouterr()
    assert "FAILED" in captured.out
    assert "golden samples" in captured.err


def test_predict_reads_arrays_and_pictures(
    bundles: dict[str, Path], array: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label = LABELS[int(reference(samples()[:1])[0].argmax())]
    text = answer(capsys, "predict", bundles["tflite"], array, picture, "--top", 2)
    assert f"{array}: {label}" in text and f"{picture}: {label}" in text
    assert text.count("%") == 4
    lines = answer(capsys, "predict", bundles["tflite"], array, picture, "--json").splitlines()
    one, two = (json.loads(line) for line in lines)
    assert one["scores"] == two["scores"] and one["label"] == label
    assert one["input"] == str(array) and len(one["top"]) == 3
    assert set(one["timing_ms"]) == {"read", "preprocess", "execute", "postprocess"}


def test_a_picture_is_made_grey_and_resized(
    bundles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = Image.fromarray(samples()[0][..., 0]).resize((40, 24)).convert("RGB")
    big.save(tmp_path / "big.png")
    small = np.asarray(big.convert("L").resize((8, 8), Image.Resampling.BILINEAR))[..., None]
    np.save(tmp_path / "small.npy", small)
    big.save(tmp_path / "big.JPEG", quality=95)
    names = [tmp_path / name for name in ("big.png", "small.npy", "big.JPEG")]
    lines = answer(capsys, "predict", bundles["onnx"], *names, "--json").splitlines()
    scores = [json.loads(line)["scores"] for line in lines]
    assert scores[0] == scores[1]
    assert scores[2] == pytest.approx(scores[0], abs=0.5)


def test_bench_reports_percentiles_and_the_machine(
    bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text = answer(capsys, "bench", bundles["onnx"], "--calls", 40, "--warmup", 1)
    for word in ("p50_ms", "p99_ms", "throughput_per_s", "execute", "predict", "onnxruntime"):
        assert word in text
    facts = json.loads(
        answer(capsys, "bench", bundles["onnx"], "--calls", 40, "--interpreter", "onnxruntime", "--json")
    )
    assert facts["execute"]["calls"] == facts["predict"]["calls"] == 40
    assert 0 < facts["execute"]["p50_ms"] <= facts["execute"]["p99_ms"]
    assert facts["machine"]["cpu"] and facts["interpreter"] == "onnxruntime"
    assert facts["seen"]["seconds"] > 0 and facts["seen"]["noise"] >= 0
    assert facts["why"] == facts["disturbed"] and facts["comparable"] == (not facts["disturbed"])


def test_bench_says_in_one_line_what_disturbed_it(
    bundles: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, lines in ((-1.0, 1), (float("inf"), 0)):  # nothing spreads by less than nothing
        for name in [name for name in vars(conditions) if name.startswith("MAX_")]:
            monkeypatch.setattr(conditions, name, limit if name == "MAX_NOISE" else float("inf"))
        text = answer(capsys, "bench", bundles["onnx"], "--calls", 40)
        reasons = [line for line in text.splitlines() if line.startswith("noisy measurement: the rounds spread by")]
        assert len(reasons) == lines
        assert "NOT COMPARABLE" not in text


@pytest.mark.parametrize("command", ["verify", "info", "selftest", "bench"])
def test_a_missing_bundle_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere.edge.zip" in refusal(capsys, 4, command, "nowhere.edge.zip")


def test_wrong_inputs_are_one_line(
    bundles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((9, 8, 1), np.uint8))
    np.save(tmp_path / "object.npy", np.array([{"a": 1}]), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.zeros(3))
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "deep.png")
    (tmp_path / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    (tmp_path / "empty.npy").write_bytes(b"")
    words = {
        "wide.npy": "[9, 8, 1]",
        "object.npy": "plain",
        "several.npy": "archive",
        "empty.npy": "plain",
        "deep.png": "8 bits",
        "torn.png": "decoded",
        "absent.npy": "no such file",
        "sound.wav": ".wav",
    }
    for name, word in words.items():
        line = refusal(capsys, 4, "predict", bundles["onnx"], tmp_path / name)
        assert word in line and name in line


def test_a_changed_bundle_is_exit_code_8(
    bundles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(bundles["tflite"].read_bytes())
    data[data.index(b"TFL3") + 40] ^= 1
    bad = tmp_path / "bad.edge.zip"
    bad.write_bytes(data)
    for command in ("verify", "info", "selftest", "bench"):
        assert "model.tflite" in refusal(capsys, 8, command, bad)


def test_a_foreign_interpreter_is_exit_code_5(bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert "onnxruntime" in refusal(capsys, 5, "selftest", bundles["onnx"], "--interpreter", "litert")


@pytest.mark.parametrize(
    "arguments",
    [[], ["verfy", "x"], ["verify"], ["verify", "x", "--jsn"], ["predict", "x"], ["bench", "x", "--calls", "0"],
     ["bench", "x", "--warmup", "-1"], ["predict", "x", "y.npy", "--top", "many"]],
)  # fmt: skip
def test_a_misspelt_command_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: edgerun" in capsys.readouterr().err


def test_control_c_is_130_without_a_traceback(bundles: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "edgekit.runner", "bench", str(bundles["onnx"]), "--calls", "100000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    try:
        _, complaint = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert complaint.strip() == "edgerun: interrupted"


def test_a_plain_ascii_terminal_gets_an_answer(bundles: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "edgekit.runner", "selftest", str(bundles["onnx"])]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "passed" in done.stdout


def test_a_reader_that_leaves_early_gets_no_traceback(bundles: dict[str, Path]) -> None:
    command = f"{sys.executable} -m edgekit.runner info {bundles['onnx']} --json | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["predict", "bench", "selftest"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--interpreter", "foo", "got foo; use one of litert, onnxruntime, openvino, tensorflow, tflite_runtime"),
        ("--threads", "4096", "got 4096; use a whole number from 1 to 1024"),
        ("--threads", "0", "got 0; use a whole number from 1"),
    ],
)
def test_a_misspelt_option_is_exit_code_2_and_says_what_there_is(
    command: str, option: str, value: str, message: str, bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, str(bundles["onnx"]), *(["x.npy"] if command == "predict" else []), option, value])
    assert caught.value.code == 2
    assert f"argument {option}: {message}" in capsys.readouterr().err


def test_the_doctor_knows_no_misspelt_interpreter_either(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--interpreter", "liter"])
    assert caught.value.code == 2
    assert "argument --interpreter: got liter; use one of litert, onnxruntime" in capsys.readouterr().err


def test_an_interpreter_of_another_target_is_no_misspelling(
    bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "tflite models run on litert" in refusal(
        capsys, 5, "selftest", bundles["tflite"], "--interpreter", "openvino"
    )
