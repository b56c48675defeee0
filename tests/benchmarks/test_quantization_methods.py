"""`python -m benchmarks.quantization_methods`: methods of the quantizers on a small network, each beside the first."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks import quantization_methods
from edgekit.data import load
from edgekit.targets.evaluate import file_outputs, network_inputs
from edgekit.workbook.plan import load_plan
from tests.benchmarks.untrained import saved
from tests.conftest import TINY


@pytest.mark.long
@pytest.mark.parametrize("kind", ["int8-openvino", "int4-tflite", "int4_dense-tflite"])
def test_every_method_has_a_row(kind: str, tmp_path: Path) -> None:
    text, failed = quantization_methods.compare(TINY, saved(tmp_path / "model"), tmp_path / "out", [kind])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    methods = quantization_methods.groups()[kind]
    assert [row[1] for row in rows] == list(methods) and {row[0] for row in rows} == {kind}
    assert rows[0][2].endswith("%") and rows[0][3] == ""
    assert failed == (kind == "int8-openvino" and find_spec("brevitas") is None)
    for _, method, accuracy, beside, snr in rows[1:]:
        if method == "cross-layer equalisation" and find_spec("brevitas") is None:
            assert accuracy == "ModuleNotFoundError: No module named 'brevitas'"
        else:
            assert accuracy.endswith("%") and " to " in beside and float(snr) > 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["int8-openvino", "int4_dense-openvino", "int4-tflite", "int4_dense-tflite"])
def test_the_first_of_a_kind_is_edgekits_own_file(kind: str, tmp_path: Path) -> None:
    precision, _, target = kind.partition("-")
    plan = load_plan(TINY)
    samples = network_inputs(load(plan.data).calibration.x, plan.run.preprocess)
    subject = quantization_methods.Subject(saved(tmp_path / "model"), samples)
    (tmp_path / "first").mkdir()
    first = next(iter(quantization_methods.groups()[kind].values()))(subject, tmp_path / "first")
    convert = import_module(f"edgekit.targets.{target}.convert").convert
    own = convert(subject.model, precision, samples, tmp_path / "own")
    answers = [file_outputs(kind, target, tmp_path / name, files, samples) for name, files in
               (("first", first), ("own", own))]  # fmt: skip
    np.testing.assert_allclose(answers[0], answers[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.yaml", "none", "out"], r"none\.yaml: no such config file"),
        ([str(TINY), "none", "out"], r"none.model\.json: not a saved model"),
        ([str(TINY), "none", "out", "--only", "int2"], r"--only: got int2; each must be one of int8-openvino, "),
    ],
    ids=["config", "model", "only"],
)
def test_what_is_wrong_is_told_in_a_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=f"^{said}") as ended:
        quantization_methods.main(arguments)
    assert "\n" not in str(ended.value) and not (tmp_path / "out").exists()
