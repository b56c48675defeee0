from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from edgekit.core.errors import ConfigError
from edgekit.models import store
from edgekit.search import builtin_spaces as spaces
from edgekit.search.space import Space
from edgekit.workbook.plan import Plan, load_plan

ROOT = Path(__file__).parents[2]
CIFAR10 = ROOT / "configs" / "cifar10.yaml"
DIGITS = ROOT / "configs" / "digits.yaml"
ALONE = "budget={accuracy_drop_pp: 1.2}"
"""Of CIFAR-10, whose budget is relative to a file of others."""


def opened(values: dict, plan: Plan, folder: Path) -> Space:
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump(spaces.complete_space(values, plan), sort_keys=False))
    return Space.load(path, plan.values)


def without_rivals(config: Path, folder: Path, *settings: str) -> Plan:
    """The config without files of others, which need not be here."""
    own = ["benchmark.rivals=[]", ALONE, f"data.path={folder}"] if config == CIFAR10 else []
    return load_plan(config, [*own, *settings], checked_before=True)


@pytest.mark.parametrize("config", [DIGITS, CIFAR10], ids=["digits", "cifar10"])
def test_the_space_of_a_shipped_config_needs_no_file_and_each_of_its_corners_is_a_plan(
    config: Path, tmp_path: Path
) -> None:
    plan = without_rivals(config, tmp_path)
    space = opened(spaces.space_for_config(plan), plan, tmp_path)
    base = ["benchmark.rivals=[]", ALONE, f"data.path={tmp_path}"] if config == CIFAR10 else []
    space.check(lambda settings: load_plan(config, [*base, *settings], checked_before=True))
    networks = next(each for each in space.dimensions if each.key == spaces.BUILDER)
    assert len(networks.choices or ()) == {DIGITS: 2, CIFAR10: 5}[config]


@pytest.mark.parametrize("builder", sorted(spaces.space_files()))
def test_each_shipped_file_is_a_whole_space_whose_corners_can_be_built(builder: str, tmp_path: Path) -> None:
    plan = load_plan(DIGITS, checked_before=True)
    given = yaml.safe_load(spaces.space_files()[builder].read_text())
    space = opened(given, plan, tmp_path)
    for _, parameters, _ in space.corners():
        kwargs = {key.rpartition(".")[2]: value for key, value in parameters.items()
                  if key.startswith(f"{spaces.KWARGS}.")}  # fmt: skip
        assert parameters[spaces.BUILDER] == builder and kwargs
        spec = store.ModelSpec(
            builder=builder, kwargs=kwargs, input_shape=(1, 8, 8), num_classes=10, classes=tuple("0123456789"),
            task="classification", output_shape=None, preprocess=[], raw={"kind": "image", "shape": [8, 8, 1],
                                                                         "dtype": "uint8", "range": [0, 255]},
        )  # fmt: skip
        store.build(spec)


def test_a_space_for_other_networks_leaves_the_configs_candidates_and_arguments_out(tmp_path: Path) -> None:
    plan = without_rivals(CIFAR10, tmp_path)
    completed = spaces.complete_space(spaces.space_for_config(plan), plan)["space"]
    assert completed["distill.candidates"] == [[]] and completed[spaces.KWARGS] == [{}]
    settings = [f"{key}={yaml.safe_dump(entry[0], default_flow_style=True).strip()}"
                for key, entry in completed.items() if key in ("distill.candidates", spaces.KWARGS)]  # fmt: skip
    trial = load_plan(CIFAR10, ["benchmark.rivals=[]", ALONE, f"data.path={tmp_path}", *settings,
                                "distill.student.builder=edgekit.models.resnet:resnet8"],
                      checked_before=True)  # fmt: skip
    assert trial.stages["distill"].student.title == "resnet8"  # type: ignore[attr-defined]


def test_of_losses_that_compete_in_a_run_a_trial_has_one(tmp_path: Path) -> None:
    plan = without_rivals(CIFAR10, tmp_path)
    completed = spaces.complete_space(spaces.space_for_config(plan), plan)["space"]
    names = [[section["loss"] for section in choice] for choice in completed["distill.losses"]]
    assert names == [["soft_targets"], ["dkd"], ["dist"], ["hints"]]
    assert completed["distill.temperature"]["when"] == {"distill.losses": [[{"loss": "soft_targets"}]]}
    without = without_rivals(CIFAR10, tmp_path, "distill.losses=[{loss: dkd}, {loss: dist}]")
    assert "distill.temperature" not in spaces.complete_space(spaces.space_for_config(without), without)["space"]
    one_loss = load_plan(DIGITS, checked_before=True)
    assert "distill.losses" not in spaces.complete_space({"space": {"seed": [0, 1]}}, one_loss)["space"]
    own = {"space": {"distill.losses": [[{"loss": "dkd"}]]}}
    assert spaces.complete_space(own, plan)["space"]["distill.losses"] == own["space"]["distill.losses"]


def test_options_of_the_user_are_not_replaced() -> None:
    plan = load_plan(DIGITS, ["prune.measure=true"], checked_before=True)
    given = {
        "space": {
            spaces.KWARGS: [{"width": 8}],
            spaces.BUILDER: ["a:b", "c:d"],
            "convert.models": [["sparse"]],
        }
    }
    completed = spaces.complete_space(given, plan)["space"]
    assert "prune.measure" not in completed and {key: completed[key] for key in given["space"]} == given["space"]
    own = {"space": {"distill.student.kwargs.width": {"low": 8, "high": 16}}}
    assert spaces.KWARGS not in spaces.complete_space(own, plan)["space"]


def test_the_goal_is_no_option() -> None:
    plan = load_plan(DIGITS, checked_before=True)
    with pytest.raises(ConfigError, match=r"space\.budget\.accuracy_drop_pp: must be the same for all trials"):
        spaces.complete_space({"space": {"budget.accuracy_drop_pp": [1.0, 2.0]}}, plan)


def test_the_error_for_networks_without_a_search_space_lists_those_that_have_one(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def net(input_shape, num_classes):\n    raise NotImplementedError\n")
    config = tmp_path / "own.yaml"
    own = "{builder: 'own:net'}"
    config.write_text(f"name: own\ndata: {{source: digits}}\nmodel: {own}\ndistill: {{student: {own}}}\n")
    with pytest.raises(ConfigError, match=r"edgekit ships no space for own:net; name one with --space"):
        spaces.space_for_config(load_plan(config, checked_before=True))
