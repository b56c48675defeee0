"""Classic models and their ONNX files, each made here by its own library and its own converter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.base import BaseEstimator

FEATURES = 6
WORDS = np.array(["calm", "storm", "wind"])
ROWS = 1000


@dataclass(frozen=True)
class ModelFile:
    """A model's file, and what its own library says: probabilities (n, classes), or values (n, 1)."""

    content: bytes
    own: Callable[[np.ndarray], np.ndarray]
    classes: tuple[str, ...] = ()


def samples(count: int, seed: int, decimals: int = 16) -> np.ndarray:
    """(count, FEATURES) float32, rounded to so many decimals."""
    x = np.random.default_rng(seed).normal(size=(count, FEATURES)) * np.array([1, 1, 10, 0.1, 1, 100])
    return np.round(x, decimals).astype(np.float32)


def classes_of(x: np.ndarray, count: int) -> np.ndarray:
    """A class 0 to count - 1 for each row, mostly by its first three features."""
    score = x[:, 0] + x[:, 1] ** 2 + x[:, 2] / 10
    return np.digitize(score, np.quantile(score, np.arange(1, count) / count))


def values_of(x: np.ndarray) -> np.ndarray:
    """A value of about unit scale for each row."""
    return np.sin(x[:, 0]) + x[:, 1] / 2 + x[:, 2] / 20


def sklearn(model: BaseEstimator, classes: int, words: bool = False, zipmap: bool = True) -> ModelFile:
    """A fitted classifier by skl2onnx; with `words` its labels are text."""
    from skl2onnx import to_onnx

    x = samples(400, 1)
    y = classes_of(x, classes)
    model.fit(x, WORDS[:classes][y] if words else y)
    options = {"zipmap": zipmap} if not zipmap else {}
    content = to_onnx(model, x[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString()
    return ModelFile(content, model.predict_proba, tuple(map(str, model.classes_)))


def sklearn_regressor(model: BaseEstimator) -> ModelFile:
    """A fitted regressor by skl2onnx."""
    from skl2onnx import to_onnx

    x = samples(400, 1)
    model.fit(x, values_of(x))
    content = to_onnx(model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString()
    return ModelFile(content, lambda rows: model.predict(rows).reshape(-1, 1))


def xgboost(classes: int) -> ModelFile:
    """A boosted classifier by XGBoost and onnxmltools; 0 classes: a regressor."""
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    from xgboost import XGBClassifier, XGBRegressor

    x = samples(400, 1)
    types = [("input", FloatTensorType([None, FEATURES]))]
    options = {"n_estimators": 20, "max_depth": 3, "n_jobs": 1}
    if not classes:
        model = XGBRegressor(**options).fit(x, values_of(x))
        content = convert_xgboost(model, initial_types=types).SerializeToString()
        return ModelFile(content, lambda rows: model.predict(rows).reshape(-1, 1))
    model = XGBClassifier(**options).fit(x, classes_of(x, classes))
    content = convert_xgboost(model, initial_types=types).SerializeToString()
    return ModelFile(content, model.predict_proba, tuple(map(str, range(classes))))


def lightgbm(classes: int, zipmap: bool = True, decimals: int = 16) -> ModelFile:
    """A boosted classifier by LightGBM and onnxmltools; 0 classes: a regressor."""
    from lightgbm import LGBMClassifier, LGBMRegressor
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    x = samples(400, 1, decimals)
    types = [("input", FloatTensorType([None, FEATURES]))]
    options = {"n_estimators": 20, "num_leaves": 8, "n_jobs": 1, "verbose": -1}
    if not classes:
        model = LGBMRegressor(**options).fit(x, values_of(x))
        content = convert_lightgbm(model, initial_types=types).SerializeToString()
        return ModelFile(content, lambda rows: model.predict(rows).reshape(-1, 1))
    model = LGBMClassifier(**options).fit(x, classes_of(x, classes))
    content = convert_lightgbm(model, initial_types=types, zipmap=zipmap).SerializeToString()
    return ModelFile(content, model.predict_proba, tuple(map(str, range(classes))))


def _makers() -> dict[str, Callable[[], ModelFile]]:
    from sklearn.ensemble import (
        GradientBoostingClassifier,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        "forest": lambda: sklearn(RandomForestClassifier(20, random_state=0), 3, words=True),
        "forest, no ZipMap": lambda: sklearn(RandomForestClassifier(20, random_state=0), 3, zipmap=False),
        "forest of two classes": lambda: sklearn(RandomForestClassifier(20, random_state=0), 2),
        "tree": lambda: sklearn(DecisionTreeClassifier(max_depth=5, random_state=0), 3),
        "boosted": lambda: sklearn(GradientBoostingClassifier(n_estimators=10, random_state=0), 3, words=True),
        "logistic": lambda: sklearn(make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)), 3, words=True),
        "logistic of two classes": lambda: sklearn(make_pipeline(StandardScaler(), LogisticRegression()), 2),
        "support vectors": lambda: sklearn(make_pipeline(StandardScaler(), SVC(probability=True, random_state=0)), 3),
        "naive Bayes": lambda: sklearn(GaussianNB(), 3, words=True),
        "perceptron": lambda: sklearn(MLPClassifier((8,), max_iter=200, random_state=0), 3, words=True),
        "XGBoost": lambda: xgboost(3),
        "XGBoost of two classes": lambda: xgboost(2),
        "LightGBM": lambda: lightgbm(3),
        "LightGBM of two classes": lambda: lightgbm(2),
        "LightGBM, no ZipMap": lambda: lightgbm(2, zipmap=False),
        "forest of values": lambda: sklearn_regressor(RandomForestRegressor(20, random_state=0)),
        "line": lambda: sklearn_regressor(LinearRegression()),
        "XGBoost of values": lambda: xgboost(0),
        "LightGBM of values": lambda: lightgbm(0),
    }


MAKERS = _makers()
REGRESSORS = ("forest of values", "line", "XGBoost of values", "LightGBM of values")


@cache
def model_file(name: str) -> ModelFile:
    """One of MAKERS, made once in a process."""
    return MAKERS[name]()
