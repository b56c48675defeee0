"""The stage itself: from sealed artifacts to sealed variants, or to an error that names the boundary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from convert_runs import seal_run, spec_of

from edgekit.core import artifacts
from edgekit.core import left_out as reasons
from edgekit.core.artifacts import Artifact
from edgekit.core.config import validate
from edgekit.core.errors import ConfigError, ConversionError, EdgekitError, TrustError
from edgekit.data import Data
from edgekit.models import store
from edgekit.report.sections import conversion
from edgekit.stages import convert
from edgekit.stages.convert import ConvertConfig, numerics
from edgekit.targets import evaluate
from edgekit.targets.jobs import ConvertedFiles, Quantization
from edgekit.targets.onnx import convert as onnx

pytestmark = pytest.mark.numerics


@pytest.fixture(scope="module")
def quantized_network(trained: Any, data: Data) -> Any:
    """The tiny network with its weights moved and int8 ranges learnt, as QAT leaves it."""
    from edgekit.models import quantized

    import nncf  # isort: skip

    torch.set_num_threads(1)
    module, spec = trained("tiny", width=12)
    inputs = torch.from_numpy(evaluate.network_inputs(data.calibration.x, spec.preprocess))
    network = nncf.quantize(quantized.Quantizable(module), nncf.Dataset(list(inputs.split(1))), subset_size=40)
    with torch.no_grad():
        network.network.head.weight.mul_(1.25)
        network.network.head.bias.mul_(1.25)
    return network.eval()


@pytest.fixture(scope="module")
def run_folder(
    trained: Any, data: Data, quantized_network: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Artifact]:
    """Distillation was rejected, there is no sparse network, and QAT was chosen for the pruned one."""
    run = tmp_path_factory.mktemp("run")
    tiny = trained("tiny")
    models = {"baseline": tiny, "student": tiny, "pruned": trained("tiny", width=12)}
    return run, seal_run(run, data, models, qat=quantized_network)


@pytest.fixture(scope="module")
def finished(run_folder: tuple[Path, Artifact], data: Data) -> Artifact:
    run, source = run_folder
    return convert.run(source, data, ConvertConfig(targets=["openvino", "onnx"], check_samples=40), run / "convert")


def _variants(artifact: Artifact) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(artifact.file("variants.json").read_text())}


def test_every_variant_is_listed_with_its_files(finished: Any) -> None:
    artifact = finished
    variants = _variants(artifact)
    assert list(variants) == [
        f"{model}-{precision}-{target}"
        for model in ("baseline", "pruned")
        for target, offered in (
            ("openvino", ("fp32", "fp16", "int8", "w8")),
            ("onnx", ("fp32", "fp16", "int8", "dynamic")),
        )
        for precision in offered
    ]
    for variant in variants.values():
        assert variant["bytes"] == sum(artifact.file(name).stat().st_size for name in variant["files"])
    listed = {name for variant in variants.values() for name in variant["files"]}
    content = {name for name in artifact.files if not name.startswith(artifacts.EVIDENCE)}
    assert content == listed | {"variants.json", "left_out.json"}


def test_equal_and_missing_networks_are_left_out_with_a_note(finished: Any) -> None:
    notes = finished.metrics["notes"]
    assert [note.split(":")[0] for note in notes] == ["student", "sparse"]
    assert "same network as baseline" in notes[0]


def test_boundaries_run_from_torch_to_each_file(finished: Any) -> None:
    variants = _variants(finished)

    def chain(name: str) -> list[tuple[str, str]]:
        return [(one["from"], one["to"]) for one in variants[name]["boundaries"]]

    assert chain("baseline-fp32-onnx") == [("torch-fp32", "onnx-fp32")]
    assert chain("baseline-int8-onnx") == [("torch-fp32", "onnx-fp32"), ("onnx-fp32", "onnx-int8")]
    assert chain("pruned-int8-openvino") == [("torch-fp32 (tuned)", "openvino-int8")]
    for variant in variants.values():
        for one in variant["boundaries"]:
            assert one["ok"] and one["snr_db"] > 8 and 0.9 <= one["top1_agreement"] <= 1
    assert variants["baseline-fp32-onnx"]["boundaries"][0]["max_abs"] < 1e-3


def test_redundant_operators_are_recorded_and_what_depends_on_the_machine_is_not_sealed(finished: Any) -> None:
    artifact, variants = finished, _variants(finished)
    redundant = artifact.metrics["debris"]
    for name, variant in variants.items():
        assert variant["debris"] == [one for one in redundant.get(name, []) if not one["compiled"]]
    assert conversion.transposes_table(artifact).rows == [("none in 16 variants", "", "", "")]
    turned = {"kind": "transpose", "operator": "Reorder", "where": "stem → deep", "moved_bytes": 4096}
    debris = {"baseline-fp32-openvino": [{**turned, "compiled": False}, {**turned, "compiled": True}]}
    worse = replace(artifact, metrics={**artifact.metrics, "debris": debris})
    assert conversion.transposes_table(worse).rows == [
        ("baseline-fp32-openvino", "in the file", "stem → deep", "4,096"),
        ("baseline-fp32-openvino", "when compiled", "stem → deep", "4,096"),
    ]
    table = conversion.table(worse)
    [cell] = [
        row[table.columns.index("redundant operators")] for row in table.rows if row[0] == "baseline-fp32-openvino"
    ]
    assert cell == "transpose 1 [transpose 1]"


def test_qat_reaches_both_targets(finished: Any, data: Data, quantized_network: Any) -> None:
    artifact, variants = finished, _variants(finished)
    spec = spec_of("tiny", width=12)
    inputs = evaluate.network_inputs(data.validation.x, spec.preprocess)
    with torch.inference_mode():
        in_simulation = quantized_network(torch.from_numpy(inputs)).numpy()
    # OpenVINO carries the learnt ranges too; the others find their own for the tuned weights
    tuned = {
        "openvino": in_simulation,
        "onnx": evaluate.torch_outputs(artifact.ancestor("quantize").path / "model", inputs),
    }
    for target in ("openvino", "onnx"):
        variant = variants[f"pruned-int8-{target}"]
        assert (variant["method"], variants[f"baseline-int8-{target}"]["method"]) == ("qat", "ptq")
        files = ConvertedFiles.from_json(
            {**variant, "names": [Path(name).name for name in variant["files"]], "float_ops": variant["float_ops"]}
        )
        outputs = evaluate.file_outputs("x", target, artifact.path / variant["name"], files, inputs)
        assert numerics.compare(tuned[target], outputs).snr_db > 20, target  # the untuned weights are 12 dB away


def test_after_qat_each_target_that_sets_its_own_ranges_follows_the_recipe(
    trained: Any, data: Data, quantized_network: Any, tmp_path: Path
) -> None:
    """And the network that was not tuned follows the one that won before the tuning."""
    models = {"baseline": trained("tiny"), "pruned": trained("tiny", width=12)}
    chosen, before = Quantization("percentile"), Quantization("percentile", True)
    source = seal_run(tmp_path, data, models, quantized_network, chosen, before)
    config = ConvertConfig(
        targets=["onnx", "openvino"], models=["baseline", "pruned"], precisions=["int8"], int8_min_snr_db=3
    )
    artifact = convert.run(source, data, config, tmp_path / "convert")
    variants = _variants(artifact)
    tuned = variants["pruned-int8-onnx"]
    assert (tuned["method"], tuned["quantization"]) == ("qat", {**chosen.to_json(), "keep_float": []})
    assert variants["pruned-int8-openvino"]["quantization"] is None  # it carries the ranges that were learnt
    for target in ("onnx", "openvino"):
        assert variants[f"baseline-int8-{target}"]["quantization"] == {**before.to_json(), "keep_float": []}
    by_name = {row[0]: row[1] for row in conversion.table(artifact).rows}
    assert by_name["pruned-int8-onnx"] == "QAT, percentile" and by_name["pruned-int8-openvino"] == "QAT"

    inputs = evaluate.network_inputs(data.calibration.x, spec_of("tiny", width=12).preprocess)
    content = {}
    for ranges in ("minmax", "percentile"):
        folder = tmp_path / ranges
        onnx.convert(source.path / "model", "int8", inputs, folder, quantization=Quantization(ranges))
        content[ranges] = (folder / onnx.FILE).read_bytes()
    [file] = tuned["files"]
    assert artifact.file(file).read_bytes() == content["percentile"] != content["minmax"]


def test_the_sealed_artifact_is_whole(finished: Any) -> None:
    artifacts.verify(artifacts.load(finished.path))
    assert finished.stage == "convert" and finished.metrics["variants"] == 16


def test_a_wrong_conversion_is_caught_and_named(trained: Any, data: Data, tmp_path: Path) -> None:
    module, _ = trained("tiny")
    source = seal_run(tmp_path, data, {"baseline": (module, spec_of("swapped"))})
    config = ConvertConfig(targets=["openvino"], models=["baseline"], precisions=["fp32"])
    named = r"baseline: torch-fp32 → openvino-fp32 .* top-1 agreement 0\.\d+"
    with pytest.raises(ConversionError, match=named) as caught:
        convert.run(source, data, config, tmp_path / "convert")
    assert "60 validation samples" in str(caught.value) and "SNR" in str(caught.value)
    assert not (tmp_path / "convert" / artifacts.RECORD).exists()


@pytest.mark.parametrize("precision", ["fp16", "int8"])  # what float32 loses may be the network's own rounding
def test_each_precision_is_held_to_its_own_tolerance(precision: str, trained: Any, data: Data, tmp_path: Path) -> None:
    source = seal_run(tmp_path, data, {"baseline": trained("tiny")})
    config = ConvertConfig.model_validate(
        {"targets": ["openvino"], "models": ["baseline"], "precisions": [precision], f"{precision}_min_snr_db": 199}
    )
    with pytest.raises(ConversionError, match=rf"torch-fp32 → openvino-{precision} .* at least 199 dB required"):
        convert.run(source, data, config, tmp_path / "convert")


def test_a_layer_that_loses_much_is_named_with_the_option_that_allows_it(
    trained: Any, data: Data, tmp_path: Path
) -> None:
    source = seal_run(tmp_path, data, {"baseline": trained("tiny")})
    config = ConvertConfig(targets=["onnx"], models=["baseline"], precisions=["int8"], int8_max_layer_loss_db=0.01)
    message = r"inside its tolerance, but one layer loses \d+ dB, .* diverge at .*raise convert.int8_max_layer_loss_db"
    with pytest.raises(ConversionError, match=message):
        convert.run(source, data, config, tmp_path / "convert")


def test_a_further_candidate_outside_its_tolerance_is_left_out(trained: Any, data: Data, tmp_path: Path) -> None:
    source = seal_run(tmp_path, data, {"baseline": trained("tiny")})
    config = ConvertConfig(
        targets=["onnx"], models=["baseline"], precisions=["fp32", "dynamic"], further_min_snr_db=199.0, check_samples=8
    )
    artifact = convert.run(source, data, config, tmp_path / "convert")
    assert list(_variants(artifact)) == ["baseline-fp32-onnx"]
    [left_out] = json.loads(artifact.file("left_out.json").read_text())
    assert left_out == {
        "name": "baseline-dynamic-onnx", "model": "baseline", "precision": "dynamic", "target": "onnx"
    }  # fmt: skip
    [record] = artifact.metrics["left_out"]
    assert record["reason"].startswith("baseline: onnx-fp32 → onnx-dynamic is outside its tolerance")
    assert (record["kind"], record["operator"], record["layer"]) == ("numerics", None, None)
    assert {name: record[name] for name in left_out} == left_out
    assert conversion.missing_names(artifact) == []
    assert not list(artifact.path.glob("baseline-dynamic-onnx*"))
    assert [row[0] for row in conversion.table(artifact).rows] == ["baseline-fp32-onnx"]
    [row] = conversion.left_out_table(artifact).rows
    assert row[:2] == ("baseline-dynamic-onnx", "numerics") and "outside its tolerance" in row[4]


NOT_ONNX = "pruned-fp32-onnx left out: GuardOnDataDependentSymNode: "


@pytest.fixture(scope="module")
def guarded_run(trained: Any, data: Data, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A baseline that every target takes, and a pruned network that the exporter to ONNX cannot follow."""
    module, _ = trained("tiny", width=12)
    models = {"baseline": trained("tiny"), "pruned": (module, spec_of("guarded", width=12))}
    return seal_run(tmp_path_factory.mktemp("guarded"), data, models)


def test_what_a_converter_cannot_take_costs_its_own_rows(guarded_run: Artifact, data: Data, tmp_path: Path) -> None:
    config = ConvertConfig(targets=["onnx", "openvino"], precisions=["fp32", "int8"], check_samples=40)
    artifact = convert.run(guarded_run, data, config, tmp_path / "convert")
    both = [f"{precision}-{target}" for target in ("onnx", "openvino") for precision in ("fp32", "int8")]
    assert list(_variants(artifact)) == [
        *(f"baseline-{each}" for each in both),
        *(f"pruned-{each}" for each in both[2:]),
    ]
    first, second = artifact.metrics["left_out"]
    assert (first["name"], first["kind"]) == ("pruned-fp32-onnx", "control flow")
    assert "Could not guard on data-dependent expression" in first["cause"] and "torch.where" in first["advice"]
    assert first["place"].startswith("convert_nets.py:") and first["cause"] in first["reason"]
    assert (second["name"], second["kind"]) == ("pruned-int8-onnx", "rests")
    assert second["reason"] == "it is made from pruned-fp32-onnx, which was left out"
    names = {"model": "pruned", "target": "onnx"}
    assert json.loads(artifact.file("left_out.json").read_text()) == [
        {"name": "pruned-fp32-onnx", "precision": "fp32", **names},
        {"name": "pruned-int8-onnx", "precision": "int8", **names},
    ]
    assert conversion.missing_names(artifact) == []
    rows = {row[0]: row for row in conversion.left_out_table(artifact).rows}
    assert rows["pruned-fp32-onnx"][1:] == ("control flow", "", "", first["cause"], first["advice"])
    assert rows["pruned-int8-onnx"][1:] == ("rests", "", "", second["reason"], "")
    [line] = reasons.describe_left_out(artifact.metrics["left_out"])
    assert line == f"pruned-fp32-onnx (and with it pruned-int8-onnx): {first['reason']}"
    artifacts.verify(artifacts.load(artifact.path))


def test_a_strict_config_goes_on_without_nothing(guarded_run: Artifact, data: Data, tmp_path: Path) -> None:
    config = ConvertConfig(targets=["onnx"], models=["pruned"], precisions=["fp32"], strict=True)
    with pytest.raises(ConversionError, match=NOT_ONNX) as caught:
        convert.run(guarded_run, data, config, tmp_path / "convert")
    assert caught.value.exit_code == 5
    assert str(caught.value).endswith("convert.strict is true: set it to false to continue without this variant")
    assert not (tmp_path / "convert" / artifacts.RECORD).exists()


def test_a_target_without_any_variant_is_an_error_that_names_what_can_be_made(
    guarded_run: Artifact, data: Data, tmp_path: Path
) -> None:
    config = ConvertConfig(targets=["onnx", "openvino"], models=["pruned"], precisions=["fp32", "int8"])
    with pytest.raises(ConversionError) as caught:
        convert.run(guarded_run, data, config, tmp_path / "convert")
    message = str(caught.value)
    assert caught.value.exit_code == 5 and "\n" not in message
    assert message.startswith(f"convert: no variant for onnx: {NOT_ONNX}")
    assert message.endswith("(and 1 more of onnx); openvino can be made: take onnx out of targets")
    assert not (tmp_path / "convert" / artifacts.RECORD).exists()


def test_a_target_that_the_config_does_not_name_is_gone_on_without(
    guarded_run: Artifact, data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wish: dict[str, Any] = {"models": ["pruned"], "precisions": ["fp32"], "targets_named": False}
    artifact = convert.run(guarded_run, data, ConvertConfig(targets=["onnx", "openvino"], **wish), tmp_path / "convert")
    assert list(_variants(artifact)) == ["pruned-fp32-openvino"]
    [(target, reason)] = artifact.metrics["targets_left_out"].items()
    assert target == "onnx" and reason.startswith(NOT_ONNX)
    assert f"convert: no file for onnx: {NOT_ONNX}" in capsys.readouterr().out
    with pytest.raises(ConversionError, match="no variant for onnx: pruned-fp32-onnx left out"):
        convert.run(guarded_run, data, ConvertConfig(targets=["onnx"], **wish), tmp_path / "none")


def test_a_wrong_file_is_left_out_with_its_layer_and_what_is_made_from_it(
    trained: Any, data: Data, tmp_path: Path
) -> None:
    module, _ = trained("tiny", width=12)
    models = {"baseline": trained("tiny"), "pruned": (module, spec_of("swapped", width=12))}
    config = ConvertConfig(targets=["openvino"], precisions=["fp32", "fp16"])
    artifact = convert.run(seal_run(tmp_path, data, models), data, config, tmp_path / "convert")
    assert list(_variants(artifact)) == ["baseline-fp32-openvino", "baseline-fp16-openvino"]
    wrong, rests = artifact.metrics["left_out"]
    assert (wrong["name"], wrong["kind"]) == ("pruned-fp32-openvino", "numerics")
    assert "torch-fp32 → openvino-fp32 is outside its tolerance" in wrong["cause"]
    assert wrong["layer"] and f"diverge at {wrong['layer']} " in wrong["cause"]
    assert wrong["advice"].startswith("the converter changed what the network computes")
    assert (rests["name"], rests["kind"]) == ("pruned-fp16-openvino", "rests")
    assert not list(artifact.path.glob("pruned-*"))


@pytest.fixture(scope="module")
def amplifying(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Converts the network of a builder's name to OpenVINO."""

    def convert_(builder: str, data: Data) -> Artifact:
        run = tmp_path_factory.mktemp(builder)
        module, _ = trained("tiny")
        models = {"baseline": trained("tiny", width=12), "pruned": (module, spec_of(builder))}
        config = ConvertConfig(targets=["openvino"], precisions=["fp32"], check_samples=40)
        return convert.run(seal_run(run, data, models), data, config, run / "convert")

    return convert_


def test_a_network_that_amplifies_rounding_ships_with_its_conditioning(amplifying: Any, data: Data) -> None:
    artifact = amplifying("amplifying", data)
    usual, own = (one["boundaries"][-1] for one in _variants(artifact).values())
    assert "conditioning" not in usual and own["snr_db"] < 60
    assert "float64 against float32" in own["conditioning"] and "amplifies rounding" in own["conditioning"]
    assert [note for note in artifact.metrics["notes"] if "conditioning" in note or own["conditioning"] in note]


@pytest.mark.parametrize(
    ("builder", "advice"),
    [
        ("swapped", "the converter changed what the network computes"),
        ("amplifying_wrong", "the converter changed what the network computes"),
        ("chaotic", "the network amplifies rounding until its answers depend on the machine"),
    ],
)
def test_a_file_that_differs_by_more_than_rounding_is_refused(
    amplifying: Any, data: Data, builder: str, advice: str
) -> None:
    [lost] = amplifying(builder, data).metrics["left_out"]
    assert lost["advice"].startswith(advice)
    assert "the network differs from itself by SNR" in lost["cause"]


def test_precisions_that_a_target_does_not_offer_are_reported_and_missing_ones_are_named(finished: Any) -> None:
    artifact = finished
    absent = [f"{model}-{last}" for model in ("baseline", "pruned") for last in ("dynamic-openvino", "w8-onnx")]
    assert [row["name"] for row in json.loads(artifact.file("left_out.json").read_text())] == absent
    assert [row["name"] for row in artifact.metrics["not_offered"]] == absent
    assert artifact.metrics["left_out"] == []  # nothing was tried in vain
    assert len(conversion.table(artifact).rows) == 16
    assert [(row[0], row[1], row[4]) for row in conversion.left_out_table(artifact).rows] == [
        ("…-dynamic-openvino", "not offered", "not offered by openvino"),
        ("…-w8-onnx", "not offered", "not offered by onnx"),
    ]
    assert conversion.missing_names(artifact) == []
    unexplained = replace(artifact, metrics={**artifact.metrics, "not_offered": artifact.metrics["not_offered"][1:]})
    assert conversion.missing_names(unexplained) == ["baseline-dynamic-openvino"]
    more = replace(artifact, config={**artifact.config, "targets": ["openvino", "onnx", "tflite"]})
    assert len(conversion.missing_names(more)) == 2 * 5


def test_a_run_of_candidates_alone_needs_one(trained: Any, data: Data, tmp_path: Path) -> None:
    source = seal_run(tmp_path, data, {"baseline": trained("tiny")})
    config = ConvertConfig(targets=["onnx"], models=["baseline"], precisions=["dynamic"], further_min_snr_db=199.0)
    with pytest.raises(ConversionError, match=r"no variant for onnx: baseline-dynamic-onnx left out: "):
        convert.run(source, data, config, tmp_path / "convert")


def test_int8_follows_the_recipe_and_keeps_layers_of_the_tuned_network_alone(
    trained: Any, data: Data, tmp_path: Path
) -> None:
    recipe = Quantization("percentile", True, ("head",))
    models = {"baseline": trained("tiny"), "pruned": trained("tiny", width=12)}
    source = seal_run(tmp_path, data, models, quantization=recipe)
    config = ConvertConfig(
        targets=["onnx"], models=["baseline", "pruned"], precisions=["fp32", "int8"], int8_min_snr_db=3.0
    )
    variants = _variants(convert.run(source, data, config, tmp_path / "convert"))
    others, tuned = variants["baseline-int8-onnx"], variants["pruned-int8-onnx"]
    assert (others["method"], tuned["method"]) == ("ptq", "mixed")
    assert others["quantization"] == {"ranges": "percentile", "bias_correction": True, "keep_float": []}
    assert tuned["quantization"] == {"ranges": "percentile", "bias_correction": True, "keep_float": ["head"]}
    assert others["not_offered"] == tuned["not_offered"] == ["bias_correction"]
    assert "Gemm:head" in tuned["float_ops"] and "Gemm:head" not in others["float_ops"]
    assert variants["pruned-fp32-onnx"]["quantization"] is None


def test_int8_ranges_are_those_of_the_calibration_split(finished: Any, data: Data, tmp_path: Path) -> None:
    spec = spec_of("tiny")
    inputs = evaluate.network_inputs(data.calibration.x, spec.preprocess)
    onnx.convert(finished.ancestor("profile").path / "model", "int8", inputs, tmp_path)
    [file] = _variants(finished)["baseline-int8-onnx"]["files"]
    assert finished.file(file).read_bytes() == (tmp_path / onnx.FILE).read_bytes()


def test_changed_weights_are_refused(trained: Any, data: Data, tmp_path: Path) -> None:
    source = seal_run(tmp_path, data, {"baseline": trained("tiny")})
    weights = tmp_path / "profile" / "model" / store.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with pytest.raises(TrustError, match=r"weights\.safetensors"):
        convert.run(source, data, ConvertConfig(models=["baseline"]), tmp_path / "convert")


def test_no_network_at_all(data: Data, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"convert\.models"):
        convert.run(seal_run(tmp_path, data, {}), data, ConvertConfig(models=["sparse"]), tmp_path / "convert")


def test_samples_are_spread_over_the_split(data: Data) -> None:
    assert len(evaluate.spread_samples(data.validation, 1000)) == 60
    chosen = evaluate.spread_samples(data.validation, 7)
    assert np.array_equal(chosen[0], data.validation.x[0]) and np.array_equal(chosen[-1], data.validation.x[-1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"targets": ["onnx"], "precisions": ["w8"]}, r"precisions \['w8'\] and targets disagree: onnx offers"),
        ({"models": ["baseline", "baseline"]}, "contains a duplicate"),
        ({"precisions": ["int4"]}, "int4"),
        ({"int8_min_snr": 3.0}, "int8_min_snr_db"),
        ({"check_samples": 0}, "greater than or equal to 1"),
    ],
)
def test_config_faults(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        validate(ConvertConfig, values, "convert").check_consistency()
    assert isinstance(caught.value, EdgekitError) and caught.value.exit_code == 2
