"""Field reports: what they count, and that nothing which goes wrong costs an answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.monitor.exposition import MAX_LABEL_VALUES, OTHER
from edgekit.device.monitor.field_report import MAX_READINGS, FieldReport
from edgekit.device.monitor.histogram import BOUNDS_MS, percentile_ms
from edgekit.runner import load
from edgekit.runner.cli import main
from edgekit.runner.errors import BackendError, InputError, ResourceError
from edgekit.runner.model import Model
from edgekit.runner.postprocess.classification import Classification
from tests import requirements
from tests.reference.field_reports import write_bundle
from tests.runner import flat
from tests.runner.conftest import LABELS, npy, samples

FIXED = ("--no-trial", "--interpreter", "onnxruntime")


@pytest.fixture
def model(bundles: dict[str, Path]) -> Model:
    return load(bundles["onnx"], trial=False)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_it_says_what_was_answered_how_fast_and_where(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    model.observers.add(FieldReport(model, path))
    answers = [model.predict(image) for image in samples(30)]
    for _ in range(3):
        with pytest.raises(InputError):
            model.predict(np.zeros((1, 1), np.uint8))
    model.observers.refused(BackendError("it fell over"))
    model.observers.dropped(7)
    model.observers.close()
    found = read(path)
    assert (found["kind"], found["format"]) == ("edgekit field report", 1)
    assert (found["answered"], found["refused"], found["dropped"]) == (30, {"invalid": 3, "failed": 1}, 7)
    assert found["labels"] == {
        label: count for label in LABELS if (count := sum(each.label == label for each in answers))
    }  # type: ignore[union-attr]
    assert found["bundle"]["identity"] == model.bundle.identity and found["bundle"]["version"] == "1.2.0"
    assert found["interpreter"]["name"] == "onnxruntime" and found["interpreter"]["threads"] == 1
    assert found["device"]["python"] and found["machine"]["last"]["resident_bytes"] > 1e6
    assert "verdict" not in found


def test_latencies_are_those_that_the_answers_had(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    model.observers.add(FieldReport(model, path))
    answers = [model.predict(image) for image in samples(50)]
    model.observers.close()
    latencies = read(path)["latency_ms"]
    assert set(latencies) == {"preprocess", "execute", "postprocess", "whole"}
    for part in ("preprocess", "execute", "postprocess"):
        times_ms = [answer.timing_ms[part] for answer in answers]
        counts = [0] * (len(BOUNDS_MS) + 1)
        for place, seen in latencies[part]["counts"]:
            counts[place] = seen
        assert sum(counts) == 50
        assert latencies[part]["mean"] == pytest.approx(np.mean(times_ms))
        assert latencies[part]["p50"] == percentile_ms(counts, 0.5)
        exact = float(np.percentile(times_ms, 50, method="inverted_cdf"))
        assert exact <= latencies[part]["p50"] <= 1.1501 * exact


def test_it_is_written_while_answers_come(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    report = FieldReport(model, path, every_s=0.05)
    model.observers.add(report)
    until = time.monotonic() + 20
    while time.monotonic() < until and not (looks := read(path)["machine"]["looks"]):
        model.predict(samples(1)[0])
    assert looks and looks[0]["answered"] > 0 and looks[0]["execute_p50_ms"] > 0
    model.observers.close()
    assert report._path == path and not list(tmp_path.glob(".*"))


def test_looks_and_labels_stay_bounded(model: Model, tmp_path: Path) -> None:
    report = FieldReport(model, tmp_path / "a.json")
    for number in range(300):
        report.answered(samples(1)[0], np.zeros(3), Classification(f"n{number}", 0, [], np.zeros(3), {"execute": 1.0}))
        report._record_reading()
    report.close()
    found = read(tmp_path / "a.json")
    assert len(found["labels"]) == MAX_LABEL_VALUES + 1 and found["labels"][OTHER] == 300 - MAX_LABEL_VALUES
    assert 0 < len(found["machine"]["looks"]) <= MAX_READINGS


def test_temperature_and_throttling_are_those_of_the_machine(model: Model, tmp_path: Path) -> None:
    zone = tmp_path / "root/sys/class/thermal/thermal_zone0"
    firmware = tmp_path / "root/sys/devices/platform/soc/soc:firmware/get_throttled"
    zone.mkdir(parents=True)
    firmware.parent.mkdir(parents=True)
    for path, text in ((zone / "temp", "81500"), (zone / "type", "cpu-thermal"), (firmware, "40004")):
        path.write_text(text)
    report = FieldReport(model, tmp_path / "a.json", root=tmp_path / "root")
    report.close()
    machine = read(tmp_path / "a.json")["machine"]
    assert machine["last"]["temperature_c"] == 81.5 and machine["throttled"] is True


@dataclass(frozen=True)
class Verdict:
    level: str
    reason: str
    findings: tuple[Any, ...] = ()
    evidence: float = float("inf")


class Monitor:
    """What `FieldReport` asks of one."""

    def answered(self, *_: Any) -> None: ...
    def refused(self, *_: Any) -> None: ...
    def dropped(self, *_: Any) -> None: ...
    def close(self) -> None: ...

    def sketch(self) -> dict[str, Any]:
        return {"samples": 3}

    def verdict(self) -> Verdict:
        return Verdict("warning", "darker", (Verdict("wrong", "inner"),))


@pytest.mark.parametrize("first", [True, False])
def test_a_monitor_s_sketch_and_verdict_go_into_it(first: bool, model: Model, tmp_path: Path) -> None:
    both = [FieldReport(model, tmp_path / "a.json"), Monitor()]
    for each in both if first else reversed(both):
        model.observers.add(each)  # type: ignore[arg-type]
    model.predict(samples(1)[0])
    model.observers.close()
    found = read(tmp_path / "a.json")
    assert found["sketch"] == {"samples": 3}
    assert found["verdict"]["reason"] == "darker" and found["verdict"]["evidence"] is None
    assert found["verdict"]["findings"][0]["reason"] == "inner"


def test_a_file_that_cannot_be_is_refused_at_once(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"file/a.json: .*; name a file that can be written"):
        FieldReport(model, tmp_path / "file" / "a.json")


def test_a_folder_that_goes_away_costs_the_report_alone(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    model.observers.add(FieldReport(model, folder / "a.json"))
    (folder / "a.json").unlink()
    folder.rmdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.predict(samples(1)[0]).timing_ms
        model.observers.close()


FORKS = """
import os, sys
from edgekit.runner import load
from edgekit.device.monitor.field_report import FieldReport
import numpy as np
model = load(sys.argv[1], trial=False)
model.observers.add(FieldReport(model, sys.argv[2], every_s=0.01))
model.predict(np.zeros((8, 8, 1), np.uint8))
model.observers.close()
model.observers.add(FieldReport(model, sys.argv[2], every_s=600))
if os.fork() == 0:
    model.predict(np.zeros((8, 8, 1), np.uint8))
    sys.exit()
os.wait()
os._exit(0)
"""


def test_a_child_of_the_process_leaves_the_report_alone(bundles: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKS, str(bundles["onnx"]), str(tmp_path / "a.json")], check=True)
    assert read(tmp_path / "a.json")["answered"] == 0


@pytest.mark.processes
def test_a_disk_that_is_full_from_the_start_costs_the_report_alone(bundles: dict[str, Path], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    np.save(tmp_path / "0.npy", samples(1)[0])
    script = f'mount -t tmpfs -o size=64k none {disk} && (head -c 65536 /dev/zero > {disk}/f; true) && exec "$@"'
    command = [*requirements.mount(), "sh", "-c", script, "sh"]
    command += [sys.executable, "-m", "edgekit.runner", "predict", str(bundles["onnx"]), str(tmp_path / "0.npy")]
    command += [*FIXED, "--report", str(disk / "a.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "0.npy" in done.stdout, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("edgerun: report: ") and line.endswith("No space left on device; trying again later"), line


class TestPredict:
    """`edgerun predict --keep FOLDER --report FILE.json`."""

    def test_files_and_batches_are_reported_and_kept(self, bundles: dict[str, Path], tmp_path: Path) -> None:
        inputs = tmp_path / "in"
        inputs.mkdir()
        for number, image in enumerate(samples(12)):
            np.save(inputs / f"{number:02d}.npy", image)
        more: tuple[str, ...]
        for name, more in (("one", ()), ("batch", ("--batch", "4"))):
            out = tmp_path / name
            words = ["predict", bundles["tflite"], inputs, "--keep", out / "kept", "--keep-per-day", 5, *more]
            words += ["--no-trial"]
            out.mkdir()
            assert main([*map(str, words), "--report", str(out / "r.json")]) == 0
            found = read(out / "r.json")
            assert found["answered"] == 12
            assert len(list((out / "kept").glob("*/*.npz"))) == 5
        both = [
            sorted(path.name[:8] for path in (tmp_path / name / "kept").glob("*/*.npz")) for name in ("one", "batch")
        ]
        assert np.array(both[0], float) == pytest.approx(np.array(both[1], float), abs=1e-4)

    def test_a_refused_file_is_counted(self, bundles: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "bad.npy").write_bytes(npy(np.zeros((2, 2), np.uint8)))
        np.save(tmp_path / "good.npy", samples(1)[0])
        words = ["predict", bundles["onnx"], tmp_path, "--report", tmp_path / "r.json", *FIXED]
        assert main([*map(str, words)]) == 4
        assert read(tmp_path / "r.json")["answered"] == 1

    def test_a_stream_of_frames_is_reported(self, bundles: dict[str, Path], tmp_path: Path) -> None:
        command = [sys.executable, "-m", "edgekit.runner", "predict", bundles["onnx"], "--stream", "gray"]
        command += ["--size", "8x8", "--report", tmp_path / "r.json", "--keep", tmp_path / "kept", *FIXED]
        sent = samples(9).tobytes()
        subprocess.run([*map(str, command)], input=sent, capture_output=True, timeout=120, check=True)
        assert read(tmp_path / "r.json")["answered"] == 9
        assert len(list((tmp_path / "kept").glob("*/*.npz"))) == 9

    def test_with_watch_it_says_whether_the_model_is_still_right(self, tmp_path: Path) -> None:
        write_bundle(tmp_path / "a.edge.zip")
        np.save(tmp_path / "sample.npy", samples(1)[0])
        words = [
            "predict",
            tmp_path / "a.edge.zip",
            tmp_path / "sample.npy",
            "--watch",
            "--report",
            tmp_path / "r.json",
        ]
        assert main([*map(str, words), *FIXED]) == 0
        found = read(tmp_path / "r.json")
        assert found["verdict"]["level"] == "early" and found["sketch"]["samples"] == 1
        assert found["verdict"]["canary"]["ok"] is True, "the last look at the golden samples is in it"

    def test_with_watch_it_says_that_every_input_was_refused(self, tmp_path: Path) -> None:
        bundle = tmp_path / "watched.edge.zip"
        write_bundle(bundle)
        folder = tmp_path / "in"
        folder.mkdir()
        for number in range(9):
            np.save(folder / f"{number}.npy", np.zeros((3, 2, 1), np.uint8))
        report = tmp_path / "r.json"
        assert main(["predict", str(bundle), str(folder), *FIXED, "--watch", "--report", str(report)]) == 4
        found = read(report)
        assert found["answered"] == 0 and found["verdict"]["level"] == "warning"
        assert found["sketch"]["refused"] == found["refused"]["invalid"] == 9

    def test_sigterm_writes_the_report_and_says_so(self, tmp_path: Path, bundles: dict[str, Path]) -> None:
        report = tmp_path / "a.json"
        options = ["--stream", "gray", "--size", "8x8", "--report", str(report), "--json"]
        command = [sys.executable, "-m", "edgekit.runner", "predict", str(bundles["onnx"]), *FIXED, *options]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, **pipes, env=flat.buffered()) as process:
            assert process.stdin and process.stdout and process.stderr
            process.stdin.write(bytes(3 * 64))
            process.stdin.flush()
            answers = [process.stdout.readline() for _ in range(3)]
            process.terminate()
            errors = process.stderr.read().decode()
        assert process.returncode == 143 and all(answers)
        assert errors.splitlines()[-1] == "edgerun: terminated" and "Traceback" not in errors
        assert read(report)["answered"] == 3

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (("--keep-per-day", "3"), "--keep-per-day and --keep-bytes apply only with --keep"),
            (("--keep", ""), "--keep: name a folder"),
            (("--report", "r.txt"), "--report r.txt: name a file that ends in .json"),
        ],
    )
    def test_options_that_do_not_fit_are_misspelt(
        self, options: tuple[str, ...], text: str, bundles: dict[str, Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["predict", str(bundles["onnx"]), "x.npy", *options])
        assert ended.value.code == 2 and text in capsys.readouterr().err
