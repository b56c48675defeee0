"""Estimators of scikit-learn that skl2onnx converts answer as in scikit-learn, or are refused with the reason."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ModelError
from edgekit.models.files import onnx as onnx_files
from edgekit.models.files import onnx_classic
from edgekit.runner.backends import open_backend
from edgekit.runner.errors import BackendError

pytestmark = [pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]
FEATURES, FITTED, ASKED = 4, 200, 100
KINDS = {
    "two classes": ("classifier", 25),
    "three classes": ("classifier", 25),
    "several labels": ("classifier", 9),
    "one value": ("regressor", 30),
    "several values": ("regressor", 15),
    "outliers": ("outlier detector", 4),
}
"""The methods of the estimators, and how many of them are converted at least."""
REFUSED = {
    ("several labels", "MultiOutputClassifier"): "has 2 outputs",
    ("one value", "PLSRegression"): "declares another shape than it returns",
    ("several values", "PLSRegression"): "declares another shape than it returns",
    ("several values", "MLPRegressor"): "fixes its batch at 1",
    ("outliers", "LocalOutlierFactor"): "has 2 outputs",
    ("outliers", "SGDOneClassSVM"): "has 2 outputs",
}
"""What edgekit refuses; a classifier of several labels is refused by the shape of its label output."""
CONVERTED_WRONGLY = {
    ("two classes", "TunedThresholdClassifierCV"): "skl2onnx leaves the tuned threshold out",
    ("one value", "GaussianProcessRegressor"): "skl2onnx's float32 is 0.05 off",
    ("several values", "GaussianProcessRegressor"): "skl2onnx's float32 is 0.1 off",
    ("several values", "BaggingRegressor"): "skl2onnx averages over the wrong axis",
    ("one value", "RadiusNeighborsRegressor"): "ONNX Runtime does not run the file",
    ("several values", "RadiusNeighborsRegressor"): "ONNX Runtime does not run the file",
}
"""The file itself differs from scikit-learn, which nothing in it shows."""


def data(kind: str) -> tuple[np.ndarray, Any, np.ndarray]:
    """(FITTED, FEATURES) float32 and their targets, and the (ASKED, FEATURES) rows that are asked for."""
    random = np.random.default_rng(0)
    x, rows = (random.normal(size=(count, FEATURES)).astype(np.float32) for count in (FITTED, ASKED))
    score = x[:, 0] + x[:, 1] ** 2
    targets = {
        "two classes": np.where(x[:, 0] > x[:, 1], "yes", "no"),
        "three classes": np.array(["calm", "storm", "wind"])[np.digitize(score, np.quantile(score, [1 / 3, 2 / 3]))],
        "several labels": (x @ random.normal(size=(FEATURES, 3)) > 0).astype(int),
        "one value": np.sin(x[:, 0]) + x[:, 1] / 2,
        "several values": np.c_[np.sin(x[:, 0]), x[:, 1]].astype(np.float32),
        "outliers": None,
    }
    return x, targets[kind], rows


def estimators(kind: str) -> list[tuple[str, Any]]:
    from sklearn.base import OutlierMixin
    from sklearn.utils import all_estimators

    if kind == "outliers":
        return [(name, each) for name, each in all_estimators() if issubclass(each, OutlierMixin)]
    return list(all_estimators(type_filter=KINDS[kind][0]))


def built(estimator: Any) -> Any:
    """An estimator with its defaults, or around a linear model; None where it takes something else."""
    from sklearn.linear_model import LogisticRegression, Ridge

    for inner in (LogisticRegression(), Ridge()):
        for arguments in ((), (inner,), ([("a", inner), ("b", inner)],)):
            try:
                model = estimator(*arguments)
                options = {"random_state": 0, "novelty": True}
                return model.set_params(**{name: options[name] for name in options if name in model.get_params()})
            except (AttributeError, TypeError, ValueError):
                continue
    return None


def converted(model: Any, kind: str) -> bytes | None:
    """The file of an estimator, fitted here; None where scikit-learn cannot fit it, or skl2onnx not convert it."""
    from skl2onnx import to_onnx

    x, y, rows = data(kind)
    try:
        model.fit(x) if y is None else model.fit(x, y)
        model.predict(rows)
        return bytes(to_onnx(model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString())
    except Exception:  # of many libraries; edgekit has no part in it
        return None


def answers(path: Path, rows: np.ndarray) -> np.ndarray:
    files, sources, results = onnx_files.on_device(path)
    backend = open_backend("onnx", files, sources, tuple(results))
    return np.concatenate([backend.run(row[None]) for row in rows])


def verdict(model: Any, content: bytes, kind: str, path: Path) -> str:
    """Whether the answers for ASKED rows are scikit-learn's, or why the file is refused."""
    path.write_bytes(content)
    rows = data(kind)[2]
    try:
        found, own = answers(path, rows), model.predict(rows)
    except (ModelError, BackendError) as error:
        return f"refused: {error}"
    if kind.endswith("classes"):
        labels = np.array(onnx_classic.read(content).classes)[found.argmax(axis=1)]
        right = (labels == own).mean() >= 0.99  # float32 may round a value over the threshold of a tree
    elif kind == "outliers":
        right = np.array_equal(np.where(found.ravel() < 0, -1, 1), own)
    else:
        right = np.allclose(found.reshape(own.shape), own, rtol=1e-4, atol=1e-4)
    return "right" if right else "wrong"


@pytest.mark.parametrize("kind", KINDS)
def test_every_estimator_is_right_or_refused(kind: str, tmp_path: Path) -> None:
    tried, unlike = 0, []
    for name, estimator in estimators(kind):
        model = built(estimator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = converted(model, kind) if model is not None else None
            if content is None or (kind, name) in CONVERTED_WRONGLY:
                continue
            outcome = verdict(model, content, kind, tmp_path / "model.onnx")
        refusal = REFUSED.get((kind, name), "labels for each sample" if kind == "several labels" else "")
        tried += 1
        if (refusal not in outcome) if refusal else outcome != "right":
            unlike.append(f"{name}: {outcome}")
    print(f"{kind}: {tried} estimators tried")
    assert not unlike and tried >= KINDS[kind][1], (tried, unlike)
