"""`edgekit field pack`: what a device kept becomes data that `edgekit init` and the source `npz` take."""

from __future__ import annotations

import csv
import io
import json
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from edgekit import data
from edgekit.cli.app import app
from edgekit.device.monitor.uncertain import UncertainSamples
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.postprocess.anomaly import Anomaly
from edgekit.runner.postprocess.classification import Classification
from edgekit.runner.postprocess.detection import Detection
from edgekit.runner.postprocess.embedding import Embedding
from edgekit.runner.postprocess.multi_label import MultiLabel
from edgekit.runner.postprocess.regression import Regression
from tests.runner.conftest import LABELS, NCHW, SCORES, ModelFiles, manifest_for

RNG_SEED = 8
IDENTITY = "0123456789abcdef" * 4


def edgekit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def manifest(**changes: Any) -> Manifest:
    bundle_manifest = manifest_for(ModelFiles("onnx", {"model.onnx": b""}, NCHW, SCORES, 1e-4))
    return replace(bundle_manifest, **changes)


def classified(place: int) -> Classification:
    shares = np.full(3, 0.2, np.float32)
    shares[place] = 0.6
    ranked = sorted(zip(LABELS, shares.tolist(), strict=True), key=lambda pair: -pair[1])
    return Classification(LABELS[place], place, ranked, shares, {})


def keep(
    folder: Path, about: Manifest, raws: np.ndarray, answer: Callable[[int], Any], identity: str = IDENTITY
) -> None:
    """As a device does it."""
    observer = UncertainSamples(about, identity, folder)
    for number, raw in enumerate(raws):
        observer.answered(raw, np.zeros(3, np.float32), answer(number))
    observer.close()


def pictures(count: int = 60) -> np.ndarray:
    return np.random.default_rng(RNG_SEED).integers(0, 256, (count, 8, 8, 1)).astype(np.uint8)


@pytest.fixture
def samples_folder(tmp_path: Path) -> Path:
    """60 pictures of three classes in turn."""
    keep(tmp_path / "kept", manifest(), pictures(), lambda number: classified(number % 3))
    return tmp_path / "kept"


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def fill(path: Path, label: Callable[[dict[str, str]], str]) -> list[dict[str, str]]:
    """What a person does."""
    table_rows = rows(path)
    for row in table_rows:
        row["label"] = label(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, table_rows[0])
    writer.writeheader()
    writer.writerows(table_rows)
    path.write_text(text.getvalue())
    return table_rows


def loaded(path: Path, task: Any = "classification") -> data.Data:
    return data.load(data.parse({"source": "npz", "path": str(path), "calibration_samples": 4}, task))


def test_what_the_model_answered_is_packed_and_marked_as_such(samples_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "d.npz"
    done = edgekit("field", "pack", samples_folder, out)
    assert done.exit_code == 0, done.output
    assert "60 samples of tiny 1.2.0" in done.output and "which no one has checked" in done.output
    with np.load(out) as arrays:
        assert arrays["x_train"].shape == (60, 8, 8, 1) and arrays["x_train"].dtype == np.uint8
        assert arrays["classes"].tolist() == LABELS and int(arrays["labels_by_model"]) == 60
        by_bytes = {raw.tobytes(): number % 3 for number, raw in enumerate(pictures())}
        assert arrays["y_train"].tolist() == [by_bytes[x.tobytes()] for x in arrays["x_train"]]
    table = rows(out.with_suffix(".csv"))
    assert list(table[0]) == ["file", "time", "doubt", "answer", "label"]
    assert {row["label"] for row in table} == {""} and {row["answer"] for row in table} == set(LABELS)
    assert all((samples_folder / row["file"]).is_file() for row in table)


def test_init_and_the_source_take_it_and_say_whose_labels_they_are(samples_folder: Path, tmp_path: Path) -> None:
    assert edgekit("field", "pack", samples_folder, tmp_path / "d.npz").exit_code == 0
    done = edgekit("init", "better", "--data", tmp_path / "d.npz", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert any("60 labels of x_train are a model's own answers" in line for line in loaded(tmp_path / "d.npz").notes)


def test_corrected_labels_are_read_back_and_unlabelled_samples_left_out(samples_folder: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "d.npz", tmp_path / "d.csv"
    assert edgekit("field", "pack", samples_folder, out).exit_code == 0
    number = iter(range(60))
    swapped = {"circle": "star", "star": "circle", "square": "square"}
    result = fill(table, lambda row: swapped[row["answer"]] if next(number) < 40 else "")
    done = edgekit("field", "pack", samples_folder, out, "--labels", table, "--force")
    assert done.exit_code == 0, done.output
    assert "40 from" in done.output and "20 without one are left out" in done.output
    with np.load(out) as packed:
        assert [LABELS[y] for y in packed["y_train"]] == [row["label"] for row in result if row["label"]]
        assert "labels_by_model" not in packed.files
    assert loaded(out).notes == ()
    assert rows(table) == result, "the person's table is not touched"


def test_the_kept_samples_come_behind_the_data_that_was_trained_with(samples_folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    old = {
        "x_train": rng.integers(0, 256, (90, 8, 8)).astype(np.uint8),
        "y_train": np.arange(90) % 3,
        "x_test": rng.integers(0, 256, (30, 8, 8)).astype(np.uint8),
        "y_test": np.arange(30) % 3,
        "classes": np.array(["star", "circle", "square"]),
    }
    np.savez(tmp_path / "old.npz", **old)
    out, table = tmp_path / "d.npz", tmp_path / "d.csv"
    assert edgekit("field", "pack", samples_folder, out).exit_code == 0
    fill(table, lambda row: "moon" if row["answer"] == "star" else row["answer"])
    options = ("--labels", table, "--with", tmp_path / "old.npz", "--add-class", "moon", "--force")
    done = edgekit("field", "pack", samples_folder, out, *options)
    assert done.exit_code == 0, done.output
    assert "60 samples after 90 of" in done.output and "4 of new classes are in test" in done.output
    with np.load(out) as arrays:
        assert arrays["classes"].tolist() == ["star", "circle", "square", "moon"]
        np.testing.assert_array_equal(arrays["x_train"][:90], old["x_train"])
        np.testing.assert_array_equal(arrays["y_train"][:90], old["y_train"])
        np.testing.assert_array_equal(arrays["x_test"][:30], old["x_test"])
        assert arrays["y_test"][30:].tolist() == [3] * 4, "a fifth of the new class is tested with"
        by_pixels = {pixels.tobytes(): LABELS[number % 3] for number, pixels in enumerate(pictures())}
        meant = {"circle": "circle", "square": "square", "star": "moon"}
        for split, first in (("train", 90), ("test", 30)):
            for x, y in zip(arrays[f"x_{split}"][first:], arrays[f"y_{split}"][first:], strict=True):
                assert arrays["classes"][y] == meant[by_pixels[x.tobytes()]]
    assert loaded(out).classes == ("star", "circle", "square", "moon")


def test_labels_below_zero_of_the_older_data_keep_their_names(samples_folder: Path, tmp_path: Path) -> None:
    keep(tmp_path / "two", manifest(labels=["-1", "1"]), pictures(8), lambda number: labelled(["-1", "1"][number % 2]))
    np.savez(tmp_path / "old.npz", x_train=pictures(40)[..., 0], y_train=np.where(np.arange(40) % 2, 1, -1))
    done = edgekit("field", "pack", tmp_path / "two", tmp_path / "d.npz", "--with", tmp_path / "old.npz")
    assert done.exit_code == 0, done.output
    with np.load(tmp_path / "d.npz") as model:
        assert model["classes"].tolist() == ["-1", "1"] and set(model["y_train"].tolist()) == {0, 1}
        assert model["y_train"][:2].tolist() == [0, 1]


def labelled(label: str) -> Classification:
    return Classification(label, 0, [(label, 0.6), ("other", 0.4)], np.zeros(2, np.float32), {})


class TestTasks:
    """Labels of each task: written as answers are, and taken by the source."""

    def vectors(self, count: int = 40) -> np.ndarray:
        return np.random.default_rng(2).normal(size=(count, 5)).astype(np.float32)

    def packed(self, folder: Path, task: str, labels: list[str], answer: Callable[[int], Any]) -> dict[str, np.ndarray]:
        about = manifest(task=task, labels=labels, raw=RawSpec("vector", (5,), "float32", (-9.0, 9.0)))
        keep(folder / "kept", about, self.vectors(), answer)
        done = edgekit("field", "pack", folder / "kept", folder / "d.npz")
        assert done.exit_code == 0, done.output
        with np.load(folder / "d.npz") as arrays:
            return dict(arrays)

    def test_a_regression_has_values(self, tmp_path: Path) -> None:
        answer = lambda number: Regression({"speed": number / 4, "angle": -number / 8}, {})  # noqa: E731
        result = self.packed(tmp_path, "regression", ["speed", "angle"], answer)
        assert result["y_train"].dtype == np.float32 and result["y_train"].shape == (40, 2)
        assert sorted(result["y_train"][:, 0].tolist()) == [number / 4 for number in range(40)]
        fill(tmp_path / "d.csv", lambda row: row["answer"].replace(";", " ; "))
        again = edgekit("field", "pack", tmp_path / "kept", tmp_path / "e.npz", "--labels", tmp_path / "d.csv")
        assert again.exit_code == 0, again.output
        np.testing.assert_array_equal(np.load(tmp_path / "e.npz")["y_train"], result["y_train"])
        assert loaded(tmp_path / "e.npz", "regression").classes == ("speed", "angle")

    def test_several_labels_at_once_or_none(self, tmp_path: Path) -> None:
        output = [[], ["a"], ["b", "a"]]
        answer = lambda number: MultiLabel(output[number % 3], {"a": 0.4, "b": 0.6}, {})  # noqa: E731
        result = self.packed(tmp_path, "multi_label", ["a", "b"], answer)
        assert {tuple(y) for y in result["y_train"].tolist()} == {(0, 0), (1, 0), (1, 1)}
        assert {row["answer"] for row in rows(tmp_path / "d.csv")} == {"none", "a", "b;a"}
        assert loaded(tmp_path / "d.npz", "multi_label").classes == ("a", "b")

    def test_an_anomaly_is_0_or_1(self, tmp_path: Path) -> None:
        names = ["normal", "anomaly"]
        answer = lambda number: Anomaly(number % 4 == 0, 1.0, 2.0, names[number % 4 == 0], {})  # noqa: E731
        result = self.packed(tmp_path, "anomaly", names, answer)
        assert sorted(result["y_train"].tolist()) == [0] * 30 + [1] * 10

    def test_an_embedding_needs_a_person_first(self, tmp_path: Path) -> None:
        about = manifest(task="embedding", labels=[], raw=RawSpec("vector", (5,), "float32", (-9.0, 9.0)))
        keep(tmp_path / "kept", about, self.vectors(), lambda number: Embedding(np.ones(2, np.float32), {}))
        done = edgekit("field", "pack", tmp_path / "kept", tmp_path / "d.npz")
        assert done.exit_code == 0 and not (tmp_path / "d.npz").exists()
        fill(tmp_path / "d.csv", lambda row: "anna" if row["file"][-6] < "8" else "bert")
        done = edgekit("field", "pack", tmp_path / "kept", tmp_path / "d.npz", "--labels", tmp_path / "d.csv")
        assert done.exit_code == 0, done.output
        assert set(np.load(tmp_path / "d.npz")["classes"].tolist()) <= {"anna", "bert"}

    def test_several_inputs_keep_their_names(self, tmp_path: Path) -> None:
        tensors = (
            {"name": "ids", "shape": [2], "dtype": "int32", "range": [0, 9]},
            {"name": "weights", "shape": [3], "dtype": "float32", "range": None},
        )
        raw = RawSpec("tensors", (5,), "float32", tensors=tensors, input_path=({"step": "read_tensors"},))
        raws = np.concatenate([np.arange(80).reshape(40, 2) % 10, np.ones((40, 3))], axis=1).astype(np.float32)
        keep(tmp_path / "kept", manifest(raw=raw), raws, lambda number: classified(number % 3))
        assert edgekit("field", "pack", tmp_path / "kept", tmp_path / "d.npz").exit_code == 0
        with np.load(tmp_path / "d.npz") as model:
            assert model["x_train.ids"].dtype == np.int32 and model["x_train.ids"].shape == (40, 2)
            assert model["x_train.weights"].shape == (40, 3)

    def test_boxes_are_drawn_on_the_pictures(self, tmp_path: Path) -> None:
        keep(tmp_path / "kept", manifest(task="detection"), pictures(5), lambda number: Detection([], {}))
        done = edgekit("field", "pack", tmp_path / "kept", tmp_path / "d.npz")
        assert done.exit_code == 4 and "write the samples with --files" in done.output
        assert not list(tmp_path.glob("d.*"))
        done = edgekit("field", "pack", tmp_path / "kept", tmp_path / "d.npz", "--files", tmp_path / "drawn")
        assert done.exit_code == 0 and len(list((tmp_path / "drawn").glob("*.png"))) == 5


class TestFiles:
    def test_pictures_are_the_kept_pixels_and_a_labelled_folder_is_data(
        self, samples_folder: Path, tmp_path: Path
    ) -> None:
        out, table, folder = tmp_path / "d.npz", tmp_path / "d.csv", tmp_path / "files"
        assert edgekit("field", "pack", samples_folder, out).exit_code == 0
        fill(table, lambda row: row["answer"])
        done = edgekit("field", "pack", samples_folder, out, "--labels", table, "--files", folder, "--force")
        assert done.exit_code == 0, done.output
        result = {np.asarray(Image.open(path)).tobytes() for path in folder.glob("*.png")}
        assert result == {raw.tobytes() for raw in pictures()}
        done = edgekit("init", "better", "--data", folder, "--out", tmp_path)
        assert done.exit_code == 0 and (tmp_path / "better.yaml").is_file(), done.output

    def test_sounds_can_be_heard(self, tmp_path: Path) -> None:
        raw = RawSpec("audio", (800,), "float32", (-1.0, 1.0), 8000)
        sounds = np.random.default_rng(1).uniform(-1, 1, (3, 800)).astype(np.float32)
        keep(tmp_path / "kept", manifest(raw=raw), sounds, lambda number: classified(number))
        done = edgekit("field", "pack", tmp_path / "kept", tmp_path / "d.npz", "--files", tmp_path / "files")
        assert done.exit_code == 0, done.output
        for path in (tmp_path / "files").glob("*.wav"):
            with wave.open(str(path)) as sound:
                assert (sound.getframerate(), sound.getnframes()) == (8000, 800)
                samples = np.frombuffer(sound.readframes(800), "<i2") / 32767
            assert min(float(np.abs(samples - each).max()) for each in sounds) < 1e-4


class TestRefused:
    @pytest.mark.parametrize(
        ("label", "text"),
        [("cirle", "the bundle has no such class"), ("moon", "add a new class with --add-class 'moon'")],
    )
    def test_a_label_that_is_no_class(self, label: str, text: str, samples_folder: Path, tmp_path: Path) -> None:
        assert edgekit("field", "pack", samples_folder, tmp_path / "d.npz").exit_code == 0
        before = (tmp_path / "d.npz").read_bytes()
        fill(tmp_path / "d.csv", lambda row: label)
        done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz", "--labels", tmp_path / "d.csv", "--force")
        assert done.exit_code == 4 and text in done.output and (tmp_path / "d.npz").read_bytes() == before

    def test_files_that_are_there_may_hold_labels(self, samples_folder: Path, tmp_path: Path) -> None:
        (tmp_path / "d.csv").write_text("file,label\n")
        done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz")
        assert done.exit_code == 2 and "may hold your labels; use --force" in done.output

    def test_a_table_without_labels_or_columns(self, samples_folder: Path, tmp_path: Path) -> None:
        assert edgekit("field", "pack", samples_folder, tmp_path / "d.npz").exit_code == 0
        for text, output in (
            (None, "no kept sample has a label"),
            ("a,b\n1,2\n", "column file is missing"),
            ("file,label\nx,a\nx,b\n", "line 3: x has two labels"),
        ):
            if text is not None:
                (tmp_path / "d.csv").write_text(text)
            done = edgekit("field", "pack", samples_folder, tmp_path / "e.npz", "--labels", tmp_path / "d.csv")
            assert done.exit_code == 4 and output in done.output, done.output
            assert not (tmp_path / "e.npz").exists()

    def test_a_folder_that_holds_none_or_several_bundles(self, samples_folder: Path, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for folder in ("none", "empty"):
            done = edgekit("field", "pack", tmp_path / folder, tmp_path / "d.npz")
            assert done.exit_code == 4 and "edgerun predict --keep" in done.output
        keep(samples_folder, manifest(version="2.0.0"), pictures(3), lambda number: classified(0), "f" * 64)
        done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz")
        assert done.exit_code == 4 and "tiny 1.2.0 (0123456789ab), tiny 2.0.0 (ffffffffffff)" in done.output
        assert edgekit("field", "pack", samples_folder, tmp_path / "d.npz", "--bundle", "ffff").exit_code == 0
        assert len(np.load(tmp_path / "d.npz")["y_train"]) == 3

    def test_a_damaged_sample_is_named(self, samples_folder: Path, tmp_path: Path) -> None:
        path = next(samples_folder.glob("*/*.npz"))
        path.write_bytes(path.read_bytes()[:200])
        done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz")
        assert done.exit_code == 4 and f"{path}: is damaged" in done.output and "Traceback" not in done.output

    @pytest.mark.parametrize(
        ("name", "value"),
        [("answer", {}), ("answer", 3), ("time", 1e308), ("time", float("nan")), ("doubt", 10**400), ("bundle", [])],
    )
    def test_a_sample_that_was_edited_is_named(
        self, name: str, value: Any, samples_folder: Path, tmp_path: Path
    ) -> None:
        path = next(samples_folder.glob("*/*.npz"))
        content = dict(np.load(path))
        about = {**json.loads(content["about"].tobytes()), name: value}
        np.savez(path, **{**content, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)})
        done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz")
        text = "is missing; copy it" if name == "bundle" else f"{path}: is damaged"
        assert done.exit_code == 4 and text in done.output, done.output

    def test_a_sample_of_another_shape_is_named(self, samples_folder: Path, tmp_path: Path) -> None:
        path = next(samples_folder.glob("*/*.npz"))
        np.savez(path, **{**dict(np.load(path)), "raw": np.zeros(3, np.uint8)})
        done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz")
        assert done.exit_code == 4 and "it holds uint8[3], but the bundle takes" in done.output, done.output

    @pytest.mark.parametrize(
        ("name", "value"), [("labels", 3), ("labels", [[1]]), ("raw", {}), ("raw", None), ("name", 3), ("task", [])]
    )
    def test_a_description_that_was_edited_is_named(
        self, name: str, value: Any, samples_folder: Path, tmp_path: Path
    ) -> None:
        path = next(samples_folder.glob("bundle-*.json"))
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
        done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz")
        assert done.exit_code == 4 and f"{path}: is damaged" in done.output, done.output

    def test_older_data_of_something_else(self, samples_folder: Path, tmp_path: Path) -> None:
        np.savez(tmp_path / "old.npz", x_train=np.zeros((9, 5), np.float32), y_train=np.arange(9) % 3)
        (tmp_path / "no.npz").write_bytes(b"no")
        for name, text in (("old.npz", "give the data of this very bundle"), ("no.npz", "cannot be read as .npz")):
            done = edgekit("field", "pack", samples_folder, tmp_path / "d.npz", "--with", tmp_path / name)
            assert done.exit_code == 4 and text in done.output, done.output
            assert not list(tmp_path.glob("d.*"))
