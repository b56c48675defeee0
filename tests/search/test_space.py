"""Search spaces: the meaning of a YAML file, the settings of its points, and one line for each fault."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.config import TARGETS
from edgekit.core.errors import ConfigError
from edgekit.search.objectives import Objective
from edgekit.search.space import Space
from edgekit.workbook.plan import load_plan, workbook_folder
from tests.search import studies

DIGITS = workbook_folder("configs") / "digits.yaml"


def load(tmp_path: Path, space: str, plan_values: dict[str, Any] | None = None) -> Space:
    path = tmp_path / "space.yaml"
    path.write_text(space)
    return Space.load(path, plan_values or {})


def refusal(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    return str(error.value).splitlines()


def refused_by_digits(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text).check(lambda settings: load_plan(DIGITS, settings))
    return str(error.value).splitlines()


class TestPoints:
    def test_an_option_exists_only_beside_the_values_of_its_when(self, tmp_path: Path) -> None:
        space = studies.space(tmp_path)
        proposed = {"model.kwargs.kind": "plain", "model.kwargs.width": 8, "model.kwargs.expand": 2}
        assert "model.kwargs.expand" not in space.active_parameters(proposed)
        assert space.active_parameters({**proposed, "model.kwargs.kind": "separable"})["model.kwargs.expand"] == 2

    def test_conditions_may_be_chained_in_any_order(self, tmp_path: Path) -> None:
        space = load(
            tmp_path,
            "space:\n  c: {low: 1, high: 2, when: {b: 3}}\n  b: {choices: [3, 4], when: {a: x}}\n  a: [x, y]\n",
        )
        assert [each.key for each in space.dimensions] == ["a", "b", "c"]
        assert space.active_parameters({"a": "y", "b": 3, "c": 1}) == {"a": "y"}
        assert space.active_parameters({"a": "x", "b": 3, "c": 1}) == {"a": "x", "b": 3, "c": 1}

    def test_one_key_may_have_several_entries_that_exclude_each_other(self, tmp_path: Path) -> None:
        space = load(
            tmp_path,
            "space:\n  kind: [a, b]\n  width:\n"
            "    - {low: 8, high: 64, when: {kind: a}}\n    - {choices: [1, 2], when: {kind: b}}\n",
        )
        names = [each.name for each in space.dimensions]
        assert names == ["kind", "width#1", "width#2"]
        point = space.active_parameters({"kind": "b", "width#1": 8, "width#2": 2})
        assert point == {"kind": "b", "width": 2}
        assert space.values_by_name(point) == {"kind": "b", "width#2": 2}

    def test_choices_may_be_mappings(self, tmp_path: Path) -> None:
        space = load(tmp_path, "space:\n  distill.student: [{builder: 'a:b', kwargs: {width: 8}}, null]\n")
        assert space.dimensions[0].choices == ({"builder": "a:b", "kwargs": {"width": 8}}, None)

    def test_settings_are_read_back_as_they_were(self, tmp_path: Path) -> None:
        values = {
            "model.kwargs.text": "a=b c: d # no comment",
            "model.kwargs.number": 1e-05,
            "model.kwargs.yes": "yes",
            "model.kwargs.list": [1, {"a": None}],
            "model.kwargs.umlaut": "Größe 😀",
            "distill.student.builder": "edgekit.models.ds_cnn:ds_cnn",
        }
        space = load(tmp_path, "space: {a: [1]}")
        settings = space.settings(values)
        assert settings[0] == "distill.student.builder=edgekit.models.ds_cnn:ds_cnn"
        kwargs = load_plan(DIGITS, settings).run.model.kwargs
        assert {f"model.kwargs.{key}": value for key, value in kwargs.items() if f"model.kwargs.{key}" in values} == {
            key: value for key, value in values.items() if key.startswith("model.")
        }

    def test_a_section_is_set_before_what_stands_in_it(self, tmp_path: Path) -> None:
        space = load(tmp_path, "space:\n  distill.student.kwargs.width: [8]\n  distill.student: [{builder: 'a:b'}]\n")
        keys = [each.partition("=")[0] for each in space.settings({each.key: 1 for each in space.dimensions})]
        assert keys == ["distill.student", "distill.student.kwargs.width"]

    @pytest.mark.parametrize(
        ("entry", "proposed", "value"),
        [
            ("{low: 8, high: 64, step: 4}", 12, 12),
            ("{low: 0.1, high: 0.7, step: 0.1}", 0.30000000000000004, 0.3),
            ("{low: 0.0, high: 0.7}", 0.123456789, 0.1235),
            ("{low: 0.001, high: 1.0, log: true}", 0.00123456789, 0.001235),
            ("{low: 0.00012345678, high: 1.0}", 0.00012345678, 0.00012345678),
            ("[1, 2, 8]", 2, 8),
            ("[b, a]", '"a"', "a"),
        ],
    )
    def test_a_value_has_few_digits_and_stays_inside(
        self, tmp_path: Path, entry: str, proposed: Any, value: Any
    ) -> None:
        (dimension,) = load(tmp_path, f"space:\n  key: {entry}\n").dimensions
        assert dimension.value(proposed) == value
        assert type(dimension.value(proposed)) is type(value)

    def test_the_configs_own_point_is_found_where_it_lies_in_the_space(self, tmp_path: Path) -> None:
        space = load(tmp_path, "space:\n  distill.student.kwargs.width: {low: 8, high: 64, step: 4}\n")
        values = load_plan(DIGITS).values
        assert space.parameters_of_config(values) == {"distill.student.kwargs.width": 48}
        assert (
            load(tmp_path, "space:\n  distill.student.kwargs.width: {low: 8, high: 32}\n").parameters_of_config(values)
            is None
        )
        assert load(tmp_path, "space:\n  prune.ratio: {low: 0.0, high: 0.7}\n").parameters_of_config(values) is None

    def test_its_points_are_counted(self, tmp_path: Path) -> None:
        text = "space:\n  a: [1, 2]\n  b: {low: 8, high: 64, step: 4}\n  c: {low: 0.0, high: 0.6, step: 0.3}\n"
        assert load(tmp_path, text).count == 2 * 15 * 3
        assert studies.space(tmp_path).count == math.inf


class TestFaults:
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("", "space.yaml: is empty or holds only comments; it needs a mapping of keys to values"),
            ("[1, 2]", "space.yaml: holds a list, not a mapping of keys to values"),
            ("space: {a: [1, 2", "space.yaml: not a YAML config: line 1, column 17: "),
            ("space: {a: [1], a: [2]}", "space.yaml: "),
            ("objectives: [accuracy]", "space.yaml: space: got nothing; name at least one key"),
            ("space: {}", "space.yaml: space: got nothing; name at least one key"),
            ("space: [a]", "space.yaml: space: got a list; name at least one key"),
            ("spaces: {a: [1]}\nspace: {a: [1]}", 'space.yaml: spaces: unknown key, did you mean "space"?'),
            ("space: {a: {low: 3, high: 2}}", "space.yaml: space.a: low 3 is above high 2; swap them"),
            ("space: {a: {low: 0, high: 2, log: true}}", "space.yaml: space.a: low is 0, but a log scale needs more"),
            ("space: {a: {low: 1, high: 2, log: true, step: 1}}", "space.yaml: space.a: has both log and step"),
            ("space: {a: {low: 1, high: 2, log: 1}}", "space.yaml: space.a.log: got 1; give true or false"),
            ("space: {a: {low: 1, high: 2, step: 0}}", "space.yaml: space.a.step: got 0; give a number above 0"),
            ("space: {a: {low: 1}}", "space.yaml: space.a: high is missing; a range needs low and high"),
            ("space: {a: {low: x, high: 2}}", "space.yaml: space.a.low: got 'x'; give a number"),
            ("space: {a: {low: true, high: 2}}", "space.yaml: space.a.low: got True; give a number"),
            ("space: {a: {low: 1, high: .inf}}", "space.yaml: space.a.high: got inf; give a number"),
            ("space: {a: {low: 1, hihg: 2}}", 'space.yaml: space.a.hihg: unknown key, did you mean "high"?'),
            ("space: {a: []}", "space.yaml: space.a: got [] for its choices; give a list with at least one value"),
            ("space: {a: [1, 2, 1]}", "space.yaml: space.a: lists the choice 1 twice; name each choice once"),
            ("space: {a: [null, 2, null]}", "space.yaml: space.a: lists the choice None twice; name each choice once"),
            ("space: {a: [.nan, 2]}", "space.yaml: space.a: the choice nan is not a finite value; leave it out"),
            ("space: {a: 3}", "space.yaml: space.a: got 3; write choices as a list, or a range as {low: 8, high: 64}"),
            ("space: {a: {choices: [1], low: 2}}", "space.yaml: space.a: has both choices and a range"),
            ("space: {'a b': [1]}", "space.yaml: space.a b: not a dotted key; write it as for --set"),
            ("space: {a: {choices: [1], when: 3}}", "space.yaml: space.a.when: got 3; name another key of the space"),
            ("space: {a: {choices: [1], when: {b: 1}}}", "space.yaml: space.a.when: 'b' is not a key of this space"),
            (
                "space: {a: {choices: [1], when: {b: 3}}, b: [1, 2]}",
                "space.yaml: space.a.when: b is never 3; name one of its values in this space",
            ),
            (
                "space: {a: {choices: [1], when: {b: 1}}, b: {choices: [1], when: {a: 1}}}",
                "space.yaml: space: the conditions in `when` form a cycle: a → b → a; leave one out",
            ),
            (
                "space: {a: [{low: 1, high: 2}, {low: 3, high: 4}]}",
                "space.yaml: space.a: two of its entries can apply at once",
            ),
            ("objectives: [speed]\nspace: {a: [1]}", "space.yaml: objectives: got 'speed', allowed here: accuracy"),
            ("objectives: []\nspace: {a: [1]}", "space.yaml: objectives: got []; give a list such as"),
            ("objectives: [{bytes: tflit}]\nspace: {a: [1]}", "space.yaml: objectives.bytes: got 'tflit', did you"),
            (
                "objectives: [bytes, {bytes: tflite}]\nspace: {a: [1]}",
                "space.yaml: objectives: bytes of tflite is listed",
            ),
        ],
    )
    def test_each_is_one_line_that_names_the_key_and_what_to_do(self, tmp_path: Path, text: str, line: str) -> None:
        (result,) = refusal(tmp_path, text)
        assert result.removeprefix(f"{tmp_path}/").startswith(line), result

    def test_several_errors_are_reported_at_once(self, tmp_path: Path) -> None:
        assert len(refusal(tmp_path, "objectives: [speed]\nspace: {a: [], b: {low: 2, high: 1}}")) == 3

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no such config file"):
            Space.load(tmp_path / "nothing.yaml", {})


class TestCheck:
    """Against the config that is searched."""

    def test_a_valid_space_passes(self, tmp_path: Path) -> None:
        text = (
            "space:\n  distill.student.builder: ['edgekit.models.ds_cnn:ds_cnn', 'edgekit.models.resnet:resnet']\n"
            "  distill.student.kwargs: {choices: [{depth: 8}], when: {distill.student.builder: "
            "'edgekit.models.resnet:resnet'}}\n  prune.ratio: {low: 0.1, high: 0.7}\n"
        )
        load(tmp_path, text).check(lambda settings: load_plan(DIGITS, settings))

    @pytest.mark.parametrize(
        ("entry", "line"),
        [
            ("distill.lerning_rate: [0.1]", "space.yaml: space: distill.lerning_rate: unknown key, did you mean"),
            ("distilll.epochs: [3]", "space.yaml: space: distilll"),
            ("prune.ratio: {low: 0.1, high: 1.5}", "space.yaml: space: prune.ratio: got 1.5; "),
            ("distill.augment: [none, mirror]", "space.yaml: space: distill.augment: got 'mirror'; "),
        ],
    )
    def test_a_key_or_value_that_the_config_refuses_is_one_line(self, tmp_path: Path, entry: str, line: str) -> None:
        (result,) = refused_by_digits(tmp_path, f"space:\n  {entry}\n  distill.learning_rate: [0.05, 0.1]\n")
        assert result.startswith(line), result

    def test_values_that_only_exclude_each_other_are_left_to_the_trials(self, tmp_path: Path) -> None:
        text = "space:\n  data.calibration_samples: [20, 200]\n  quantize.calibration_samples: [20, 100]\n"
        space = load(tmp_path, text)
        fixed = ["convert.calibration_samples=20"]
        with pytest.raises(ConfigError):
            load_plan(DIGITS, [*fixed, "data.calibration_samples=20", "quantize.calibration_samples=100"])
        space.check(lambda settings: load_plan(DIGITS, [*fixed, *settings]))

    def test_an_option_that_can_never_exist(self, tmp_path: Path) -> None:
        text = "space: {a: [1, 2], b: {choices: [1], when: {a: 1}}, c: {choices: [5], when: {b: 1, a: 2}}}"
        with pytest.raises(ConfigError, match=r"^space.yaml: space.c: its `when` is never true"):
            load(tmp_path, text).check(lambda settings: None)


def test_the_default_objectives_are_those_of_the_first_target(tmp_path: Path) -> None:
    targets = ["onnx", "tflite"]
    space = load(tmp_path, "space: {a: [1]}", {"targets": targets})
    assert space.objectives == (Objective("accuracy"), Objective("p50_ms", "onnx"), Objective("bytes", "onnx"))
    assert load(tmp_path, "space: {a: [1]}").objectives[1].target == TARGETS[0]
