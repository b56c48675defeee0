"""Does a model from elsewhere know validation? The false alarms stay at the stated level, and reports name it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import binom, fisher_exact

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ModelError
from edgekit.core.schema.result import validate_result
from edgekit.core.tasks import SampleScores
from edgekit.data import Data, Split
from edgekit.data import load as load_data
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.report import checks, console
from edgekit.report.result import RESULT
from edgekit.report.sections import outcome
from edgekit.stages.benchmark.leakage import (
    SIGNIFICANCE_LEVEL,
    TIME_LIMITS_S,
    check_leakage,
    check_teacher,
    fisher_p_value,
)
from edgekit.stages.benchmark.reference_models import open_reference_models
from edgekit.training.teachers.config import ModelFile
from edgekit.training.teachers.from_artifact import FOLDER, RECORD, copy_file
from edgekit.training.teachers.model_file import open_file
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun


def answers(right: int, samples: int) -> np.ndarray:
    return np.arange(samples) < right


@pytest.mark.parametrize(
    "table",
    [(359, 359, 316, 359), (95, 100, 88, 100), (0, 5, 5, 5), (5, 5, 0, 5), (4, 7, 4, 7), (9990, 10000, 9940, 10000)],
)
def test_the_probability_is_fishers(table: tuple[int, int, int, int]) -> None:
    right, samples, other, others = table
    expected = fisher_exact([[right, samples - right], [other, others - other]], alternative="greater").pvalue
    assert fisher_p_value(*table) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("accuracy", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("samples", [(30, 60), (100, 100)])
def test_a_network_that_knows_neither_split_is_called_out_no_oftener_than_the_level(
    accuracy: float, samples: tuple[int, int]
) -> None:
    """Exactly, over all that both splits can show."""
    mine, others = (binom.pmf(np.arange(count + 1), count, accuracy) for count in samples)
    called_out = sum(
        mine[right] * others[other]
        for right in range(samples[0] + 1)
        for other in range(samples[1] + 1)
        if fisher_p_value(right, samples[0], other, samples[1]) <= SIGNIFICANCE_LEVEL
    )
    assert 0 < called_out <= SIGNIFICANCE_LEVEL or accuracy == 0.99


def test_one_that_learnt_validation_is_called_out_and_one_that_did_not_is_not() -> None:
    knows = check_leakage("net.keras", "baseline", answers(359, 359), answers(316, 359))
    assert knows is not None and knows["known"] and knows["p_value"] < 1e-9
    unlike = check_leakage("net.keras", "baseline", answers(320, 359), answers(316, 359))
    assert unlike is not None and not unlike["known"]
    worse = check_leakage("net.keras", "baseline", answers(200, 359), answers(316, 359))
    assert worse is not None and not worse["known"] and worse["p_value"] > 0.99


def test_an_accuracy_that_is_no_share_of_right_answers_is_not_tested() -> None:
    marks = SampleScores("regression", np.zeros((4, 2)))
    assert check_leakage("net.keras", "baseline", marks, marks) is None


def test_it_is_reported_wherever_the_run_is_reported(tiny_run: FinishedRun, capsys: pytest.CaptureFixture[str]) -> None:
    """In the notebook's checks, the end of the run, the page and result.json; a network trained here is not tested."""
    result: dict[str, Any] = json.loads((tiny_run.folder / RESULT).read_text())
    assert result["seen_validation"] is None and outcome.leakage_lines(result) == []
    for right, sign in (
        (359, "✗ net.keras has probably seen validation samples: accuracy 100.00% on 359"),
        (317, "✓ net.keras: accuracy 88.30%"),
    ):
        row = check_leakage("net.keras", "baseline", answers(right, 359), answers(316, 359))
        checks.validation_unseen(SimpleNamespace(metrics={"seen_validation": row}))  # type: ignore[arg-type]
        assert sign in capsys.readouterr().out
        changed = {**result, "seen_validation": row}
        validate_result(changed)
        assert [line for line in outcome.leakage_lines(changed) if sign[2:] in line]
        stream = io.StringIO()
        console.print_run(changed, tiny_run.folder, Console(file=stream, width=200))
        assert ("set data.validation_from to test" in stream.getvalue()) == (right == 359)
        for role, remedy in (("teacher", "name another teacher"), ("rival", "use its accuracy on test alone")):
            others = [{**row, "role": role}] if row else []
            changed = {**result, "others_seen_validation": others}
            validate_result(changed)
            assert len(outcome.leakage_lines(changed)) == 1
            stream = io.StringIO()
            console.print_run(changed, tiny_run.folder, Console(file=stream, width=200))
            assert (f"the {role} net.keras has probably seen" in stream.getvalue()) == (right == 359)
            assert (remedy in stream.getvalue()) == (right == 359)


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data(load_plan(TINY).data)


def learnt(split: Split, path: Path) -> Path:
    """An ONNX file over the pictures' bytes whose two layers were trained on the split until they knew all of it."""
    import torch
    from onnx import TensorProto, helper, numpy_helper

    with torch.random.fork_rng():
        torch.manual_seed(4)
        x = torch.from_numpy(split.x.reshape(len(split.x), -1).astype(np.float32))
        y = torch.tensor(split.y)
        first, last = torch.nn.Linear(x.shape[1], 32), torch.nn.Linear(32, 10)
        net = torch.nn.Sequential(first, torch.nn.ReLU(), last)
    optimiser = torch.optim.Adam(net.parameters(), 0.003)
    for _ in range(150):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x / 255), y).backward()
        optimiser.step()
    assert (net(x / 255).argmax(dim=1) == y).all()
    stored = {"w": first.weight / 255, "b": first.bias, "v": last.weight, "c": last.bias}
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["wide"], transB=1),
        helper.make_node("Relu", ["wide"], ["bent"]),
        helper.make_node("Gemm", ["bent", "v", "c"], ["scores"], transB=1),
    ]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *split.x.shape[1:]])
    result = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])
    weights = [numpy_helper.from_array(value.detach().numpy(), name) for name, value in stored.items()]
    graph = helper.make_graph(nodes, "made", [source], [result], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize("split", ["validation", "train"])
def test_a_reference_model_that_really_learnt_validation_is_found_and_an_honest_one_is_not(
    split: str, data: Data, tmp_path: Path
) -> None:
    path = learnt(getattr(data, split), tmp_path / "theirs.onnx")
    [rival] = open_reference_models([ModelFile.model_validate({"path": str(path)})], data, 1)
    assert rival.leakage is not None and (rival.leakage["name"], rival.leakage["role"]) == ("theirs.onnx", "rival")
    assert rival.leakage["known"] == (split == "validation")
    assert rival.leakage["accuracy_test"] == rival.row["accuracy_test"]
    assert (rival.leakage["accuracy_validation"] == 1.0) == (split == "validation")


def taught_by(path: Path, data: Data, root: Path, baseline: Path | None = None) -> Artifact:
    """A distill artifact whose teacher is the file; the baseline is a network, or the file that is named."""
    out = artifacts.begin(root / "profile")
    if baseline:
        source = store.Source(kind="onnx", file=baseline.name)
        store.save_source(out / "model", baseline, spec_for(data, None, {}, [], source))
    else:
        spec = spec_for(data, "edgekit.models.ds_cnn:ds_cnn", {"width": 4, "blocks": 1}, [])
        store.save(out / "model", store.build(spec, 0), spec)
    profile = artifacts.seal(out, stage="profile", source=None, data_digest=data.digest, config={}, metrics={})
    out = artifacts.begin(root / "distill")
    teacher = {"kind": "file", "name": path.name, "file": copy_file(open_file(path), out / FOLDER), "preprocess": []}
    artifacts.write_json(out / RECORD, {"teacher": teacher})
    return artifacts.seal(out, stage="distill", source=profile, data_digest=data.digest, config={}, metrics={})


def test_a_teacher_that_really_learnt_validation_is_found_where_it_is_a_file_of_its_own(
    data: Data, tmp_path: Path
) -> None:
    path = learnt(data.validation, tmp_path / "theirs.onnx")
    found = check_teacher(taught_by(path, data, tmp_path / "a"), data, 1)
    assert found is not None and found["known"] and (found["name"], found["role"]) == ("theirs.onnx", "teacher")
    assert check_teacher(taught_by(path, data, tmp_path / "b", baseline=path), data, 1) is None


def test_a_slow_teacher_has_as_long_as_where_it_taught(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival has an hour, and a network that taught for longer must not end the run now."""
    monkeypatch.setitem(TIME_LIMITS_S, "rival", 0.01)
    path = learnt(data.train, tmp_path / "theirs.onnx")
    assert check_teacher(taught_by(path, data, tmp_path / "a"), data, 0) is not None
    with pytest.raises(ModelError, match=r"theirs.onnx: not finished after 0.01 s"):
        open_reference_models([ModelFile.model_validate({"path": str(path)})], data, 1)
