"""The first load: every way to run a bundle is tried in a child process, the best is remembered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.autotune import choice_cache, comparison, run_selftest
from edgekit.device.autotune.comparison import Candidate, select_best
from edgekit.device.autotune.tuning_process import TuningProcess
from edgekit.runner import bundle, load
from edgekit.runner.backends import openvino
from edgekit.runner.bundle import read
from edgekit.runner.errors import BackendError, InputError, SelftestError
from tests.runner.conftest import NCHW, SCORES, ModelFiles, WriteBundle, onnx_model, reference, samples

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "edgerun"


def remembered(cache: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in cache.glob("*.json")]


def test_the_first_load_chooses_and_the_second_follows(bundles: dict[str, Path], cache: Path) -> None:
    first = load(bundles["onnx"])
    (choice,) = remembered(cache)
    assert choice["interpreter"] == first.backend.name in ("onnxruntime", "openvino")
    assert choice["threads"] == first.threads >= 1
    (path,) = cache.glob("*.json")
    other = {"onnxruntime": "openvino", "openvino": "onnxruntime"}[first.backend.name]
    path.write_text(json.dumps({**choice, "interpreter": other, "threads": 2, "blob": ""}))
    second = load(bundles["onnx"])
    assert (second.backend.name, second.threads) == (other, 2)


def test_every_installed_interpreter_and_number_of_threads_is_tried(bundles: dict[str, Path]) -> None:
    tried = comparison.time_candidates(
        bundles["onnx"], read(bundles["onnx"]).identity, comparison.list_candidates("onnx", None, None), rounds=3
    )
    cores = len(os.sched_getaffinity(0))
    assert {way.interpreter for way in tried} == {"onnxruntime", "openvino"}
    assert {1, cores} <= {way.threads for way in tried}
    assert all(way.version and way.p50_ms and way.open_ms > 0 and not way.fault for way in tried)
    assert len(select_best(tried).p50_ms) == 4  # the first look and three rounds


def test_tensorflow_is_the_last_resort() -> None:
    assert {way.interpreter for way in comparison.list_candidates("tflite", 1, None)} == {"litert"}
    assert {way.interpreter for way in comparison.list_candidates("tflite", 1, None, all_of_them=True)} == {
        "litert",
        "tensorflow",
    }
    assert [way.interpreter for way in comparison.list_candidates("tflite", 1, "tensorflow")] == ["tensorflow"]


def test_what_is_pinned_stays_pinned(bundles: dict[str, Path], cache: Path) -> None:
    model = load(bundles["onnx"], threads=2, interpreter="openvino")
    assert (model.backend.name, model.threads) == ("openvino", 2)
    assert load(bundles["onnx"], threads=1, interpreter="onnxruntime").backend.name == "onnxruntime"
    assert len(remembered(cache)) == 2
    with pytest.raises(InputError, match="threads: got 0"):
        load(bundles["onnx"], threads=0)


@pytest.mark.parametrize(
    "change",
    [
        {"installed": {"onnxruntime": ["/elsewhere", 1, 2, 3]}},
        {"installed": {"tflite_runtime": [1]}},
        {"threads": 0},
        {"threads": "two"},
        {"surprise": 1},
    ],
)
def test_a_choice_that_no_longer_holds_is_made_again(
    change: dict[str, object], bundles: dict[str, Path], cache: Path
) -> None:
    load(bundles["onnx"], threads=1)
    (path,) = cache.glob("*.json")
    good = path.read_bytes()
    path.write_text(json.dumps({**json.loads(good), **change}))
    load(bundles["onnx"], threads=1)
    assert json.loads(path.read_text())["installed"] == json.loads(good)["installed"]
    path.write_bytes(b"{ torn")
    load(bundles["onnx"], threads=1)
    assert json.loads(path.read_text())["threads"] == 1


def test_without_trial_nothing_is_measured_or_written(bundles: dict[str, Path], cache: Path) -> None:
    model = load(bundles["onnx"], trial=False)
    assert (model.backend.name, model.threads) == ("onnxruntime", 1)
    assert not cache.exists()


def test_a_folder_that_cannot_be_written_only_means_trying_again(
    bundles: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load(bundles["onnx"], threads=1).selftest().ok


def timed(interpreter: str, threads: int, *rounds: float, fault: str = "") -> Candidate:
    return Candidate(interpreter, threads, p50_ms=rounds, fault=fault)


def test_the_fastest_wins_and_a_tie_goes_to_the_usual_one_with_fewest_threads() -> None:
    one, two, other = timed("a", 1, 1.0, 1.0, 1.0), timed("a", 2, 0.995, 0.995, 9.0), timed("b", 1, 0.5, 0.5, 0.5)
    assert select_best([one, two]) is one
    assert select_best([one, two, other]) is other
    assert select_best([one, replace(other, fault="crashed")]) is one
    assert select_best([one, timed("b", 1, 0.9)]) is one  # one look only: it was given up
    with pytest.raises(BackendError, match="a crashed; b cannot open"):
        select_best([replace(one, fault="crashed"), replace(other, fault="cannot open")])
    with pytest.raises(SelftestError, match="golden samples"):
        select_best([replace(one, fault="outputs differ from the golden samples", wrong=True)])


def test_one_that_answers_wrongly_is_left_out(write_bundle: WriteBundle) -> None:
    other = ModelFiles(
        "onnx", {"model.onnx": onnx_model(bias=np.array([9.0, 0.0, 0.0], np.float32))}, NCHW, SCORES, 1e-4
    )
    path = write_bundle(other)
    with pytest.raises(SelftestError, match=r"onnxruntime outputs differ.*openvino outputs differ"):
        load(path)
    assert not run_selftest(path, read(path)).ok


CRASH = """
import os, sys
sys.path.insert(0, sys.argv[1])
from edgekit.runner.cli import main
sys.exit(main(sys.argv[2:]))
"""


def crashing(folder: Path, code: str) -> dict[str, str]:
    """An environment whose onnxruntime is a package that does `code` when a model is opened; openvino is not there."""
    package = folder / "onnxruntime"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import os, signal, time\n"
        "class SessionOptions:\n    def add_session_config_entry(self, *_): pass\n"
        "    def add_free_dimension_override_by_name(self, *_): pass\n"
        f"def InferenceSession(*_, **__):\n    {code}\n"
    )
    blocked = folder / "openvino"
    blocked.mkdir()
    (blocked / "__init__.py").write_text("raise ImportError('blocked by the test')\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed (SIGSEGV)"),
        ("os.abort()", "crashed (SIGABRT)"),
        ("os._exit(3)", "exit code 3"),
    ],
)
@pytest.mark.parametrize("command", ["selftest", "predict", "bench"])
def test_a_crash_of_the_interpreter_is_one_line_and_exit_code_5(
    command: str, code: str, words: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    """A stand-in that really dies: which bad file kills which interpreter depends on their versions."""
    np.save(tmp_path / "x.npy", samples()[0])
    more = [str(tmp_path / "x.npy")] if command == "predict" else []
    run = [sys.executable, "-m", "edgekit.runner", command, str(bundles["onnx"]), *more]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, env=crashing(tmp_path / "bad", code))
    assert done.returncode == 5, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_model_that_hangs_is_given_up(
    bundles: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = crashing(tmp_path / "bad", "time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    monkeypatch.syspath_prepend(tmp_path / "bad")
    with (
        TuningProcess(bundles["onnx"], read(bundles["onnx"]).identity, limit_s=3.0) as child,
        pytest.raises(BackendError, match="no answer within 3 s"),
    ):
        child.ask("open", interpreter="onnxruntime", threads=1)


def gone(number: int, within_s: float = 5.0) -> bool:
    """Whether the process ends in so many seconds; one that nobody has buried yet has ended too."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_what_an_interpreter_started_goes_with_it(
    bundles: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked helper keeps the pipe open that the answers come through, and its parent dies."""
    note = tmp_path / "pid"
    code = f"p = os.fork(); p or time.sleep(600); open({str(note)!r}, 'w').write(str(p)); os._exit(3)"
    environment = crashing(tmp_path / "bad", code)
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    monkeypatch.syspath_prepend(tmp_path / "bad")
    with (
        TuningProcess(bundles["onnx"], read(bundles["onnx"]).identity, limit_s=60.0) as child,
        pytest.raises(BackendError, match="exit code 3"),
    ):
        child.ask("open", interpreter="onnxruntime", threads=1)
    assert gone(int(note.read_text()))


def test_a_really_broken_model_that_was_recorded_correctly(
    write_bundle: WriteBundle, models: dict[str, ModelFiles]
) -> None:
    """Digests hold, the content does not: mutated files on the real interpreter are refused or proven, never wrong.

    By LiteRT alone: that another one is tried where the first dies is in test_crash.py.
    """
    good = models["tflite"].files["model.tflite"]
    random = np.random.default_rng(4)
    refused = 0
    for _ in range(6):
        bad = bytearray(good)
        for position in random.integers(0, len(bad), 24):
            bad[position] = random.integers(0, 256)
        path = write_bundle(replace(models["tflite"], files={"model.tflite": bytes(bad)}))
        try:
            model = load(path, threads=1, interpreter="litert")
        except (BackendError, SelftestError):
            refused += 1
            continue
        assert model.selftest().ok
    assert refused > 2


@pytest.fixture
def blob(bundles: dict[str, Path], cache: Path) -> Path:
    """A choice with OpenVINO's compiled model, whether or not that is faster here."""
    load(bundles["openvino"], threads=1)
    (record,) = cache.glob("*.json")
    found = bundle.read(bundles["openvino"])
    data = openvino.export_compiled(found.model_files(), found.manifest.inputs, 1)
    choice = json.loads(record.read_text())
    choice_cache.store_choice(
        record.stem, choice_cache.Choice(**{**choice, "blob": bundle.sha256.hexdigest(data)}), data
    )
    return record.with_suffix(".blob")


def test_a_compiled_model_is_used_and_answers_alike(bundles: dict[str, Path], blob: Path) -> None:
    model = load(bundles["openvino"], threads=1)
    assert model.selftest().ok and blob.exists()


@pytest.mark.parametrize("how", ["another model", "another digest", "torn", "missing"])
def test_a_compiled_model_that_is_not_right_is_purged(
    how: str, bundles: dict[str, Path], blob: Path, tmp_path: Path
) -> None:
    record = blob.with_suffix(".json")
    if how == "another model":  # with the right digest, so that only the golden answer can tell
        import openvino as ov

        model = ov.Core().read_model(onnx_model(bias=np.array([9.0, 0.0, 0.0], np.float32)), b"")
        ov.save_model(model, tmp_path / "model.xml", compress_to_fp16=False)
        files = {name: (tmp_path / name).read_bytes() for name in ("model.xml", "model.bin")}
        data = openvino.export_compiled(files, bundle.read(bundles["openvino"]).manifest.inputs, 1)
        choice = json.loads(record.read_text())
        choice_cache.store_choice(
            record.stem, choice_cache.Choice(**{**choice, "blob": bundle.sha256.hexdigest(data)}), data
        )
    elif how == "another digest":
        blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
    elif how == "torn":
        data = blob.read_bytes()[:1000]
        choice = json.loads(record.read_text())
        choice_cache.store_choice(
            record.stem, choice_cache.Choice(**{**choice, "blob": bundle.sha256.hexdigest(data)}), data
        )
    else:
        blob.unlink()
    image = samples()[0]
    found = load(bundles["openvino"], threads=1).predict(image)
    np.testing.assert_allclose(found.scores, reference(image[None])[0], atol=1e-3)
    assert not blob.exists() and not record.exists()
