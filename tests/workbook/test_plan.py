"""Configs: what is right is accepted, what is wrong is explained, before anything starts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from edgekit.core.config import PATTERN_ADVICE, STAGES, TRAINING_STAGES, NetworkConfig, available_cores
from edgekit.core.errors import ConfigError, ModelError
from edgekit.runner import cpu
from edgekit.training.predict import pick_device
from edgekit.workbook.config_file import RunConfig, split_settings, stage_config
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from tests.conftest import TINY
from tests.runner.handmade import onnx

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "configs" / "digits.yaml"


def fault(*settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_plan(DIGITS, settings)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_is_valid(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEKIT_SHARED", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models/pretrainedResnet_quant.tflite").write_bytes(b"\x1c\0\0\0TFL3")
    (tmp_path / "models/pretrainedResnet.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    plan = load_plan(path)
    assert set(plan.stages) == set(STAGES)
    assert plan.run.name == path.stem


def test_without_a_distill_section_nothing_is_trained(tmp_path: Path) -> None:
    values = yaml.safe_load(DIGITS.read_text())
    path = tmp_path / "plain.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in values.items() if key not in TRAINING_STAGES}))
    assert load_plan(path).pipeline == ("profile", "convert", "benchmark", "bundle")
    with pytest.raises(ConfigError, match="prune: is configured, but distill is not; set distill.student"):
        load_plan(path, ["prune.ratio=0.3"])
    with pytest.raises(ConfigError, match="has no distill section, .* continue with 05_convert.ipynb"):
        open_stage("prune", {"config": str(path), "out": str(tmp_path)})


@pytest.mark.parametrize("setting", ["prune=false", "prune={enabled: false}"])
def test_pruning_can_be_switched_off(setting: str, tmp_path: Path) -> None:
    plan = load_plan(DIGITS, [setting])
    assert plan.pipeline == STAGES, "the stage passes the student on, and its record says so"
    assert not plan.stages["prune"].enabled  # type: ignore[attr-defined]
    assert plan.scalars("prune")["enabled"] is False
    values = yaml.safe_load(DIGITS.read_text())
    path = tmp_path / "plain.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in values.items() if key not in TRAINING_STAGES}))
    assert "prune" not in load_plan(path, [setting]).pipeline


def test_settings_override_the_file() -> None:
    plan = load_plan(DIGITS, ["prune.ratio=0.4", "seed=3", "targets=[onnx]", "budget.size_bytes=5000"])
    assert plan.stages["prune"].ratio == 0.4  # type: ignore[attr-defined]
    assert {stage.seed for stage in plan.stages.values()} == {3}
    assert plan.stages["convert"].targets == ["onnx"]  # type: ignore[attr-defined]
    assert plan.stages["benchmark"].budget.size_bytes == 5000  # type: ignore[attr-defined]
    assert plan.values["prune"]["ratio"] == 0.4


def test_settings_as_one_text_mean_the_same() -> None:
    text = "prune.ratio=0.4 targets=[onnx, tflite] seed=3"
    assert split_settings(text) == ["prune.ratio=0.4", "targets=[onnx, tflite]", "seed=3"]
    assert load_plan(DIGITS, text).stages == load_plan(DIGITS, split_settings(text)).stages


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("prune.ration=0.4", 'prune.ration: unknown key, did you mean "ratio"?'),
        ("budgett.accuracy_drop_pp=1", 'budgett: unknown key, did you mean "budget"?'),
        ("budget.accuracy_drop=1", 'budget.accuracy_drop: unknown key, did you mean "accuracy_drop_pp"?'),
        (
            "model.zzz=3",
            "model.zzz: unknown key, allowed here: builder, head, kwargs, pretrained, sha256, source, weights",
        ),
        ("data.sorce=digits", 'data.sorce: unknown key, did you mean "source"?'),
        ("data.source=digit", 'did you mean "digits"?'),
        ("budget.accuracy_confidence=0.5", "budget.accuracy_confidence: got 0.5; input should be greater than 0.5"),
        ("budget.accuracy_confidence=95", "budget.accuracy_confidence: got 95; input should be less than 1"),
        ("prune.ratio=1.4", "prune.ratio: got 1.4; input should be less than 0.95"),
        ("prune.ratio=half", "prune.ratio: got 'half'; input should be a valid number"),
        ("prune.ratio=0.9", "prune: ratio (0.9) and max_layer_ratio (0.8) disagree"),
        ("prune.steps=2.5", "prune.steps: got 2.5; input should be a valid integer"),
        ("prune.importance=l3", "prune.importance: got 'l3'; input should be 'l1', 'l2', 'taylor' or 'lamp'"),
        ("targets=[tflite, coreml]", "targets.1: got 'coreml'; input should be 'tflite', 'openvino' or 'onnx'"),
        ("targets=[onnx, onnx]", "names a target twice"),
        ("name=Digits run", "name: got 'Digits run'; write 1 to 64 small letters"),
        ("version=1.0", "version: got 1.0; input should be a valid string"),
        ("version='1.0'", "version: got '1.0'; write three numbers with dots between them, for example 1.0.0"),
        ("model.builder=resnet", "model.builder: got 'resnet'; write package.module:function, for example nets:make"),
        ("preprocess=[{step: normalise, mean: [0], std: [1]}]", 'did you mean "normalize"?'),
        ("preprocess=[{step: scale}]", "missing option 'factor'"),
        ("preprocess=[{step: scale, factor: abc}]", "factor: got 'abc'"),
        ("preprocess=[{step: normalize, mean: [0, 0, 0], std: [1, 1, 1]}]", "mean: got [0, 0, 0]; use a list of 1"),
        ("convert.fp32_max_abs=.inf", "convert.fp32_max_abs: got inf; input should be a finite number"),
        ("prune.ratio=2020-01-01", "not a YAML value"),
        ("prune.budget={}", "prune.budget: belongs at the top level"),
        ("model.weights=nothing.safetensors", "model.weights: no file 'nothing.safetensors'"),
        ("model={}", "model: names no model; give builder: package.module:function, or source: a model file"),
        ("model.source=net.onnx", "model: names both builder and source"),
        ("model={source: net.onnx, weights: w.safetensors}", "model: weights belongs to a model with builder"),
        ("model={source: net.onnx}", "model.source: no file "),
        ("model={source: '${EDGEKIT_NOT_SET}/net.onnx'}", "environment variable 'EDGEKIT_NOT_SET' is not set"),
        ("model.head=yolov8", "model: head belongs to a model with source"),
        ("model={source: net.onnx, head: yolov99}", "model.head: got 'yolov99', but the known names are yolov8, "),
        ("model={source: net.onnx, head: yolov8}", "task and model.head disagree: a head belongs to a detection"),
        ("prune=3", "prune: got 3"),
        ("name.a=3", "name holds 'digits', not a section"),
        ("=3", "write it as key=value"),
        ("prune.ratio", "write it as key=value"),
        ("prune.ratio=[", "not a YAML value"),
    ],
)
def test_what_is_wrong_is_explained(setting: str, message: str) -> None:
    assert message in fault(setting)


def test_an_impossible_combination_names_both_fields() -> None:
    output = fault("data.calibration_samples=50", "quantize.calibration_samples=60", "convert.calibration_samples=40")
    assert "quantize.calibration_samples (60) and data.calibration_samples (50) disagree" in output


def test_weights_that_are_none_hide_no_fault_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "theirs.safetensors").write_text("404: not found")
    weights = f"model.weights={tmp_path / 'theirs.safetensors'}"
    assert "disagree" in fault(weights, "data.calibration_samples=50", "quantize.calibration_samples=60")


def test_every_error_is_reported_at_once() -> None:
    output = fault("budget.accuracy_drop_pp=-1", "model.wights=x")
    assert "budget.accuracy_drop_pp" in output
    assert 'did you mean "weights"?' in output


def test_the_errors_of_all_sections_are_reported_at_once() -> None:
    output = fault(
        "name=My run", "targets=[coreml]", "bogus=1", "data.source=digit", "profile.epochs=x", "profile.epoch=1",
        "prune.ratio=7", "convert.seed=3", "convert.reference_preprocess=a b",
    ).splitlines()  # fmt: skip
    keys = [line.partition(":")[0] for line in output]
    assert keys == [
        "name", "targets.0", "bogus", "profile.epoch", "profile.epochs", "prune.ratio", "convert.seed",
        "convert.reference_preprocess", "data.source",
    ]  # fmt: skip


def test_a_fault_of_the_top_level_makes_none_of_its_own_below() -> None:
    output = fault("task=regresion")
    assert len(output.splitlines()) <= 2 and output.startswith(
        "task: got 'regresion'; input should be 'classification', "
    )


def test_many_faults_and_long_values_stay_short() -> None:
    output = fault(*(f"nothing_{number}=1" for number in range(50)))
    assert len(output.splitlines()) == 21 and output.endswith("\nand 30 more")
    output = fault(f"prune.ratio={'x' * 100_000}")
    assert len(output) < 400 and "(100,002 characters)" in output


def test_no_regular_expression_is_shown() -> None:
    patterns = {
        metadata.pattern
        for model in [RunConfig, NetworkConfig, *map(stage_config, STAGES)]
        for field in model.model_fields.values()
        for metadata in field.metadata
        if getattr(metadata, "pattern", None)
    }
    assert patterns and patterns <= set(PATTERN_ADVICE)


def test_relative_paths_start_at_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = yaml.safe_load(DIGITS.read_text())
    values["data"] = {"source": "npz", "path": "samples.npz"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.chdir(ROOT)
    assert load_plan(tmp_path / "mine.yaml").data.path == str(tmp_path / "samples.npz")  # type: ignore[attr-defined]


def test_a_pickle_of_weights_is_refused_before_anything_runs(tmp_path: Path) -> None:
    values = yaml.safe_load(DIGITS.read_text())
    values["model"]["weights"] = "theirs.pt"
    (tmp_path / "theirs.pt").write_bytes(b"\x80\x02}q\0.")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ModelError, match="theirs.pt: a Python pickle.* python -c .*model.weights: theirs.safetensors"):
        load_plan(tmp_path / "mine.yaml")


def test_settings_survive_the_way_into_a_notebook() -> None:
    parts = ["model.kwargs={depth: 20, note: 'a b=c'}", "seed=3", "profile.learning_rate=1e-2"]
    plan = load_plan(DIGITS, parts)
    again = load_plan(DIGITS, plan.settings)
    assert again.values == plan.values
    assert again.stages["profile"].learning_rate == 0.01  # type: ignore[attr-defined]


def test_yaml_anchors_may_be_merged(tmp_path: Path) -> None:
    text = DIGITS.read_text() + "\nprune: &tuning {epochs: 2}\nquantize: {<<: *tuning, learning_rate: 1e-3}\n"
    (tmp_path / "digits.yaml").write_text(text)
    plan = load_plan(tmp_path / "digits.yaml")
    assert plan.stages["quantize"].epochs == 2  # type: ignore[attr-defined]
    assert plan.stages["quantize"].learning_rate == 0.001  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not a YAML config: line 1, column 5: expected the node content, but found '<stream end>'"),
        ("a:\n\tb: 1", "line 2, column 1: .*indent with spaces, not with tabs"),
        ("a: 'x", "line 1, column 6: found unexpected end of stream, while scanning a quoted scalar"),
        ("a: " + "[" * 3000, "nested too deeply"),
        ("a: &x [1, *x]", "line 1: an alias refers to a node that contains it"),
        ("{[1]: 2}", "line 1, column 2: found unhashable key"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
        ("name: 2020-13-45", 'line 1: 2020-13-45 is read as a date; quote it: "2020-13-45"'),
        (
            "name: x\nmodel: {kwargs: {since: 2020-01-01}}",
            'line 2: 2020-01-01 is read as a date; quote it: "2020-01-01"',
        ),
        ("- 1", "holds a list, not a mapping"),
        ("", "is empty or holds only comments"),
        ("seed: 1\nseed: 2", "line 1: duplicate key: seed"),
        ("data: {source: digits}\nmodel: {builder: 'a:b'}", "name: missing"),
    ],
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_plan(path)
    assert str(caught.value).count("quote") == message.count("quote")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["name", "model", "preprocess", "<<"])
def test_a_bomb_of_aliases_is_refused_at_once(tmp_path: Path, key: str) -> None:
    """Nine lines that stand for 3.5 billion values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]" if key != "<<" else "a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join([*lines, f"{key}: *a8"]))
    began = time.monotonic()
    with pytest.raises(ConfigError, match="more than 20,000 values with its aliases expanded") as caught:
        load_plan(path)
    assert time.monotonic() - began < 1
    assert len(str(caught.value)) < 300


def test_what_is_no_text_or_far_too_long_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("name: größe".encode("latin-1"))
    with pytest.raises(ConfigError, match="is not text in UTF-8 .byte 8.; save it as UTF-8"):
        load_plan(tmp_path / "latin.yaml")
    (tmp_path / "data.yaml").write_text("a: 1\n" * 300_000)
    with pytest.raises(ConfigError, match="1,500,000 bytes, but a config has at most 1,000,000"):
        load_plan(tmp_path / "data.yaml")


def test_a_missing_config_suggests_its_neighbour() -> None:
    with pytest.raises(ConfigError, match=f'did you mean "{DIGITS}"'):
        load_plan(DIGITS.with_name("digit.yaml"))


def test_where_no_name_is_near_the_configs_there_are_listed_and_no_hidden_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml: no such config file$"):
        load_plan(tmp_path / "nope.yaml")
    (tmp_path / "pictures.yaml").touch()
    (tmp_path / ".nope.yaml").touch()
    with pytest.raises(ConfigError, match=r"no such config file; its folder has pictures\.yaml$"):
        load_plan(tmp_path / "nope.yaml")


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("model.kwargs.api_key", True),
        ("model.kwargs.apiKey", True),
        ("model.kwargs.hf_token", True),
        ("data.kwargs.password", True),
        ("model.kwargs.AWS_SECRET_ACCESS_KEY", True),
        ("model.kwargs.max_tokens", False),
        ("model.kwargs.author", False),
        ("model.kwargs.keypoints", False),
    ],
)
def test_what_looks_like_a_secret_is_refused_and_never_repeated(key: str, refused: bool) -> None:
    if not refused:
        load_plan(TINY, [f"{key}=7"])
        return
    with pytest.raises(ConfigError, match="looks like a secret") as caught:
        load_plan(TINY, [f"{key}=hunter2"])
    assert key in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_all_cores_is_written_as_a_number() -> None:
    """The number of threads decides the last bits of training, so a record that says "all" could not be rebuilt."""
    assert load_plan(TINY, ["threads=0"]).stages["profile"].threads == available_cores()


def test_the_device_is_named_before_the_key() -> None:
    """`auto` would let a machine with a GPU take over what one without it has trained."""
    for stage in ("profile", "distill", "prune", "quantize"):
        assert load_plan(TINY).stages[stage].device == pick_device("auto").type
        assert load_plan(TINY, ["device=cuda"]).stages[stage].device == "cuda"


def test_the_stages_that_train_have_the_shares_in_their_key() -> None:
    plan = load_plan(TINY, ["training.shares=4"])
    trained = {stage for stage, config in plan.stages.items() if "training" in config.model_dump()}
    assert trained == {"profile", "distill", "prune", "quantize"}
    assert {plan.stages[stage].model_dump()["training"]["shares"] for stage in trained} == {4}


def test_a_share_of_one_sample_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"batch_size \(16\) and training.shares \(9\) disagree: each shard needs "
        "at least 2",
    ):
        load_plan(TINY, ["training.shares=9"])


def test_automatic_precision_is_settled_before_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines give other bits, so they have other keys."""
    for flags, expected in ((["avx512_bf16"], "bfloat16"), (["avx2"], "float32")):
        monkeypatch.setattr(cpu, "instruction_sets", lambda flags=flags: flags)
        plan = load_plan(TINY, ["training.precision=auto", "device=cpu"])
        for stage in ("profile", "distill", "prune", "quantize"):
            assert plan.stages[stage].model_dump()["training"]["precision"] == expected
    assert load_plan(TINY).stages["profile"].training.precision == "float32"  # type: ignore[attr-defined]


def test_the_hosts_file_lies_beside_the_config() -> None:
    plan = load_plan(DIGITS, ["benchmark.where=pi4"])
    assert plan.stages["benchmark"].hosts == str(DIGITS.parent / "hosts.yaml")  # type: ignore[attr-defined]
    assert plan.stages["benchmark"].model_dump()["hosts"] == "hosts.yaml", "no folder of this machine is in a key"


def test_a_limit_of_devices_chooses_no_student_on_this_machine() -> None:
    limit = "budget.latency_p50_ms=0.5"
    here, there = load_plan(DIGITS, [limit]), load_plan(DIGITS, [limit, "benchmark.where=pi4"])
    assert here.stages["distill"].budget.latency_p50_ms == 0.5  # type: ignore[attr-defined]
    assert there.stages["distill"].budget.latency_p50_ms is None  # type: ignore[attr-defined]
    assert there.stages["benchmark"].budget.latency_p50_ms == 0.5  # type: ignore[attr-defined]


def test_a_baseline_from_a_file_and_a_network_do_not_teach_together(tmp_path: Path) -> None:
    """It would be found out when the network has been trained."""
    (tmp_path / "net.onnx").write_bytes(onnx(13, 8))
    values = [
        f"model={{source: {tmp_path}/net.onnx}}",
        "distill.teachers=[{baseline: true}, {builder: edgekit.models.ds_cnn:ds_cnn}]",
    ]
    with pytest.raises(ConfigError, match=r"distill\.ensemble and model\.source disagree: got logits"):
        load_plan(TINY, [*values, "distill.ensemble=logits"])
    load_plan(TINY, values)
