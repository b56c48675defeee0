"""A config that leaves every number at its default fits small data of every source and task, or says they are too few.

Nothing is trained: the data are read, and what a run checks before its first notebook is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from edgekit.cli.app import app
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import FILE_TASKS, TASKS
from edgekit.data import load, source_names
from edgekit.workbook import preflight_worker
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from tests.core.tasks import task_data
from tests.data import boxed, masked
from tests.data.pictures import CLASSES, samples, unpacked
from tests.data.sources import (
    test_csv_rows,
    test_csv_windows,
    test_text_folder,
    test_text_table,
    test_wav_folder,
    test_wav_track,
    test_webdataset,
)

ENOUGH = 60
"""From this size on the data are no longer too few for any task."""
SIZES = (12, ENOUGH, 400)
MLP = "edgekit.models.mlp:mlp"
Section = dict[str, Any]


def arrays(folder: Path, count: int, task: str = "classification") -> Section:
    of = task_data.ARRAYS_OF.get(task, three_digits)()
    chosen = np.random.default_rng(0).permutation(len(of["y_train"]))[:count]
    selected = {name: values[chosen] if name[1:] == "_train" else values for name, values in of.items()}
    np.savez(folder / "data.npz", allow_pickle=False, **selected)
    return {"source": "npz", "path": "data.npz"}


def three_digits() -> dict[str, np.ndarray]:
    digits = load_digits(n_class=3)
    return {"x_train": (digits.images[..., None] * 15.9).astype(np.uint8), "y_train": digits.target}


def python(folder: Path, count: int) -> Section:
    (folder / "small_data_of_mine.py").write_text(
        "import numpy as np\n\ndef make(count):\n    x = np.random.default_rng(0).normal(size=(count, 6))\n"
        "    return {'x_train': x.astype(np.float32), 'y_train': np.arange(count) % 3}\n"
    )
    return {"source": "python", "function": "small_data_of_mine:make", "kwargs": {"count": count}}


def boxes(folder: Path, count: int) -> Section:
    boxed.WRITERS["yolo"](folder / "data", boxed.scenes(count))
    return {"source": "boxes", "path": "data", "annotations": "yolo", "height": 48, "width": 64, "cache": "cache"}


def masks(folder: Path, count: int) -> Section:
    masked.WRITERS["folders"](folder / "data", masked.scenes(count))
    return {"source": "masks", "path": "data", "layout": "folders", "height": 48, "width": 64, "cache": "cache"}


def pictures(folder: Path, count: int) -> Section:
    unpacked(folder, samples(train=count // len(CLASSES)))
    return {"source": "image_folder", "path": "pictures", "size": 8, "cache": "cache"}


def rows(folder: Path, count: int) -> Section:
    test_csv_rows.written(folder / "waters.csv", count)
    return {"source": "csv_rows", "path": "waters.csv", "label": "kind"}


def windows(folder: Path, count: int) -> Section:
    test_csv_windows.folder(folder / "worn", each=count // 3, rows=20)
    return {"source": "csv_windows", "path": "worn", "window": 20}


def text_files(folder: Path, count: int) -> Section:
    test_text_folder.folder(folder / "texts", count)
    return {"source": "text_folder", "path": "texts", "tokens": 16}


def text_rows(folder: Path, count: int) -> Section:
    test_text_table.table(folder / "texts.tsv", count=count)
    return {"source": "text_table", "path": "texts.tsv", "tokens": 16}


def sounds(folder: Path, count: int) -> Section:
    test_wav_folder.folder(folder / "sounds", count)
    return {"source": "wav_folder", "path": "sounds", "rate_hz": test_wav_folder.RATE_HZ, "seconds": 0.1}


def track(folder: Path, count: int) -> Section:
    test_wav_track.recording(folder / "street.wav", test_wav_track.alternating(count // 2))
    return {"source": "wav_track", "path": "street.wav", "rate_hz": test_wav_track.RATE_HZ, "seconds": 0.05}


def shards(folder: Path, count: int) -> Section:
    test_webdataset.shards(folder / "shards", count, each=count)
    return {"source": "webdataset", "path": "shards", "size": 8, "cache": "cache"}


def digits(_: Path, count: int) -> Section:
    return {"source": "digits", "limit": count}


SOURCES: dict[str, Callable[[Path, int], Section]] = {
    "npz": arrays, "python": python, "boxes": boxes, "masks": masks, "image_folder": pictures, "csv_rows": rows,
    "csv_windows": windows, "text_folder": text_files, "text_table": text_rows, "wav_folder": sounds,
    "wav_track": track, "webdataset": shards, "digits": digits,
}  # fmt: skip
TASK_OF = {"boxes": "detection", "masks": "segmentation"}
BUILDERS = {"detection": "edgekit.models.detector:detector", "segmentation": "edgekit.models.segmenter:segmenter",
            "anomaly": "edgekit.models.autoencoder:autoencoder",
            "text": "edgekit.models.text_transformer:text_transformer"}  # fmt: skip
KWARGS = {"embedding": {"dimensions": 8}}


def config(folder: Path, task: str, data: Section, **more: Any) -> Path:
    """A config that says what must be said, and no number."""
    kind = "text" if "tokens" in data else task
    network = {"builder": BUILDERS.get(kind, MLP), "kwargs": KWARGS.get(task, {})}
    values = {"name": "small", "task": task, "data": data, "model": network, "distill": {"student": network}, **more}
    (folder / "small.yaml").write_text(yaml.safe_dump(values))
    return folder / "small.yaml"


def check(path: Path, count: int) -> None:
    """Everything passes; or the one line says that the data are too few, where they are very few."""
    try:
        preflight_worker.check_plan(load_plan(path), path.parent)
    except DataError as error:
        message = str(error)
        assert count < ENOUGH, message
        assert "\n" not in message and "calibration_samples" not in message
        assert re.search("add .*samples|give .*more samples|record more|put more into", message), message


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("source", SOURCES)
def test_defaults_fit_every_source(source: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "small_data_of_mine", raising=False)
    check(config(tmp_path, TASK_OF.get(source, "classification"), SOURCES[source](tmp_path, count)), count)


def test_every_source_is_tried() -> None:
    assert set(SOURCES) == set(source_names()) - {*FILE_TASKS}, "no networks are trained for these"


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("task", [task for task in TASKS if task not in (*TASK_OF.values(), *FILE_TASKS)])
def test_defaults_fit_every_task(task: str, count: int, tmp_path: Path) -> None:
    check(config(tmp_path, task, arrays(tmp_path, count, task)), count)


@pytest.mark.parametrize("count", [30, 400])
def test_what_init_writes_fits(count: int, tmp_path: Path) -> None:
    pictures(tmp_path, count)
    result = CliRunner().invoke(app, ["init", "mine", "--data", str(tmp_path / "pictures"), "--out", str(tmp_path)])
    if result.exit_code:
        assert result.exit_code == 4 and count < ENOUGH and "more samples" in result.output
        return
    assert "Network" in preflight_worker.check_plan(load_plan(tmp_path / "mine.yaml"), tmp_path)


def test_400_pictures_need_no_number(tmp_path: Path) -> None:
    plan = load_plan(config(tmp_path, "classification", pictures(tmp_path, 400)))
    data = load(plan.data)
    assert (len(data.train), len(data.calibration)) == (180, 60)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"quantize": {"calibration_samples": 61}}, "quantize.calibration_samples: got 61, but the calibration split"),
        ({"convert": {"calibration_samples": 200}}, "convert.calibration_samples: got 200, but the calibration split"),
        ({"convert": {"check_samples": 81}}, "convert.check_samples: got 81, but the validation split has 80 samples"),
        ({"quantize": {"sensitivity_samples": 500}}, "quantize.sensitivity_samples: got 500, but the validation split"),
        ({"prune": {"importance": "taylor", "taylor_samples": 181}}, "prune.taylor_samples: got 181, but the train"),
        ({"bundle": {"golden_samples": 100}}, "bundle.golden_samples: got 100, but the validation split has 80"),
    ],
)
def test_a_number_that_is_written_is_a_demand(section: Section, message: str, tmp_path: Path) -> None:
    path = config(tmp_path, "classification", pictures(tmp_path, 400), **section)
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}.*leave it out"):
        preflight_worker.check_plan(load_plan(path), tmp_path)


def test_so_is_one_in_a_notebooks_cell(tmp_path: Path) -> None:
    path = config(tmp_path, "classification", pictures(tmp_path, 400))
    cell = {"config": str(path), "out": str(tmp_path / "runs")}
    assert open_stage("profile", cell).name == "profile"
    with pytest.raises(ConfigError, match=r"prune\.taylor_samples: got 181, but the train split has 180 samples"):
        open_stage("prune", {**cell, "taylor_samples": 181})


def test_the_digits_keep_their_calibration_split(tmp_path: Path) -> None:
    """What has enough is divided as it always was, whether the number is written or not."""
    stored, left_out = (
        load(load_plan(config(tmp_path, "classification", {"source": "digits", **more})).data)
        for more in ({"calibration_samples": 200}, {})
    )
    assert stored.digest == left_out.digest and len(stored.calibration) == 200


@pytest.mark.parametrize(("drop", "message"), [(1.0, True), (10.0, False)])
def test_a_budget_that_so_few_samples_cannot_show_is_reported_before_the_training(
    drop: float, message: bool, tmp_path: Path
) -> None:
    budget = {"accuracy_drop_pp": drop}
    path = config(tmp_path, "classification", pictures(tmp_path, 400), budget=budget)
    result = preflight_worker.check_plan(load_plan(path), tmp_path)
    assert ("80 samples cannot show less than" in result.get("Accuracy", "")) == message
