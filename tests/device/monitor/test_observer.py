"""Observers that fail: the answer goes out, however warnings are treated."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from edgekit.runner import load
from edgekit.runner.errors import InputError
from tests.runner import flat


class Broken:
    """An observer whose methods all raise."""

    def answered(self, raw: Any, outputs: Any, prediction: Any) -> None:
        raise ValueError("broken")

    def refused(self, error: Any) -> None:
        raise ValueError("broken")

    def dropped(self, count: int) -> None:
        raise ValueError("broken")

    def close(self) -> None:
        raise ValueError("broken")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flat.write(tmp_path_factory.mktemp("bundle") / "flat.edge.zip", flat.VECTOR)


@pytest.mark.parametrize("warned", ["error", "ignore"])
def test_an_observer_that_fails_costs_no_answer(bundle: Path, warned: Any) -> None:
    model = load(bundle, trial=False)
    with warnings.catch_warnings():
        warnings.simplefilter(warned)
        model.observers.add(Broken())
        assert model.predict(flat.examples(flat.VECTOR, 1)[0]).label
        assert not model.observers, "it is left out"
        model.observers.add(Broken())
        model.observers.close()


def test_what_is_no_place_for_metrics_is_refused(bundle: Path) -> None:
    for where in (3, True, b"model.prom"):
        with pytest.raises(InputError, match=r"metrics: got .*; use a file that ends in \.prom"):
            load(bundle, trial=False, metrics=where)  # type: ignore[arg-type]
