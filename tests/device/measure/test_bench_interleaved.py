"""`edgerun bench A B …`: several bundles timed in turns, with the intervals of their ratios."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.runner.cli import main
from tests.device.releases import device
from tests.runner.conftest import onnx_model


def slow_model() -> bytes:
    """The tiny network behind products of matrices that take hundreds of times as long, and that change nothing."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_from_string(onnx_model())
    graph = model.graph
    first = graph.node[0]
    shape = [each.dim_value for each in graph.input[0].type.tensor_type.shape.dim]
    size = int(np.prod(shape))
    graph.initializer.append(numpy_helper.from_array(np.eye(size, dtype=np.float32), "eye"))
    graph.initializer.append(numpy_helper.from_array(np.array([1, size], np.int64), "flat"))
    graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), "back"))
    nodes = [helper.make_node("Reshape", [first.input[0], "flat"], ["v0"])]
    nodes += [helper.make_node("MatMul", [f"v{place}", "eye"], [f"v{place + 1}"]) for place in range(400)]
    nodes.append(helper.make_node("Reshape", ["v400", "back"], ["again"]))
    first.input[0] = "again"
    for place, node in enumerate(nodes):
        graph.node.insert(place, node)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("two")
    return (
        device.write(folder / "fast.edge.zip"),
        device.write(folder / "slow.edge.zip", slow_model(), version="2.0.0"),
    )


def bench(*words: object) -> list[str]:
    return ["bench", *map(str, words), "--no-trial", "--rounds", "10", "--calls", "50"]


def test_it_says_which_is_the_fastest_and_by_how_much(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*bench(*two), "--json", "--samples"]) == 0
    found = json.loads(capsys.readouterr().out)
    fast, slow = found["bundles"]
    assert (fast["bundle"], slow["bundle"]) == tuple(map(str, two)) and fast["sha256"] != slow["sha256"]
    assert fast["ratio"] == fast["ratio_low"] == fast["ratio_high"] == 1
    assert 2 < slow["ratio_low"] <= slow["ratio"] <= slow["ratio_high"]
    assert slow["low_ms"] <= slow["p50_ms"] * 1.5 and slow["threads"] == 1 and slow["interpreter"] == "onnxruntime"
    assert found["rounds"] == found["openings"] == 10 and found["calls_per_round"] == 5
    assert [len(each["samples_ns"]) for each in found["bundles"]] == [50, 50]
    assert np.percentile(slow["samples_ns"], 50) / 1e6 == pytest.approx(slow["p50_ms"], abs=1e-5)
    assert {"disturbed", "comparable", "why", "machine"} <= set(found)


def test_people_see_the_fastest_first(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(bench(*reversed(two))) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if "times the fastest" in line)
    assert [line.split()[-1] for line in lines[head + 1 : head + 3]] == [str(each) for each in two]
    assert (
        "1.00 (1.00–1.00)" in lines[head + 1]
        and "10 rounds in rotating order, each file opened 10 times" in lines[head + 3]
    )
    table = lines[: head + 4]  # where something else ran, a line tells all that disturbed it, however long
    assert all(len(line) <= 100 + len(str(two[1])) for line in table)


def test_what_answers_wrongly_is_not_timed(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = device.wrong(tmp_path / "wrong.edge.zip")
    assert main(bench(two[0], wrong)) == 5
    captured = capsys.readouterr()
    assert (
        captured.out == ""
        and f"{wrong}: does not give the golden outputs on this device" in captured.err
        and captured.err.count("\n") == 1
    )


@pytest.mark.parametrize("words", [["--compare"], ["--minutes", "1"], ["--rate", "5"]])
def test_options_of_one_bundle_are_none_of_several(
    words: list[str], two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", *map(str, two), *words])
    assert "several bundles are timed in rounds; leave out" in capsys.readouterr().err


def test_samples_are_those_of_turns(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", str(two[0]), "--samples"])
    assert "--samples applies only to bundles that are timed in rounds" in capsys.readouterr().err
    assert main([*bench(two[0]), "--json", "--samples"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["bundles"]
    assert row["ratio"] == 1 and len(row["samples_ns"]) == 50
