"""Who proposes the trials: Optuna's Gaussian processes for short studies, its TPE for the rest of long ones.

How Optuna 5 treats what a study has, read in its source, and what is done about it here:

- Conditional options. GPSampler models only options that every trial has, and draws all others at random. So it is
  asked for every option, and one that does not exist gets a fixed value. TPESampler with `group=True` models together
  the options that exist together, so it is asked only for those that exist.
- Several objectives. GPSampler takes the logarithm of the expected hypervolume improvement. TPESampler splits the
  trials by rank of domination, then by hypervolume.
- Constraints. GPSampler multiplies with the probability of being feasible, and needs the same constraints for each
  trial. TPESampler puts infeasible trials behind all others.
- A batch. Trials proposed before in the same batch stand in the study as running. GPSampler draws their outcomes from
  its model (q-EHVI); TPESampler counts them among the bad ones (constant liar). Both are functions of the seed.
- A point that was asked before. It would teach nothing, as the same parameters give the same outcome. So one drawn at
  random takes its place.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from edgekit.core.errors import ConfigError
from edgekit.core.hashing import canonical_json, digest
from edgekit.core.schema.study import SamplerRow, TrialRow
from edgekit.search.objectives import Objective, losses
from edgekit.search.space import Dimension, Space, identity

if TYPE_CHECKING:
    import optuna

Name = Literal["gp", "gp+tpe", "tpe", "random"]
MOST_GP = 150
"""A study of up to so many trials has a Gaussian process propose all of them."""
GP_FIRST = 40
"""In a longer study it proposes so many, then TPE goes on; docs/results/search.md has what each finds."""
STARTUP = 10
"""Trials drawn at random before a model is asked."""


def choose(trials: int | None, wanted: Name | None = None) -> SamplerRow:
    """The sampler for a study of so many trials, and why; None: as many as the time allows."""
    if wanted:
        return {"name": wanted, "reason": "it was asked for"}
    if trials is not None and trials > MOST_GP:
        reason = f"{trials} trials: a Gaussian process finds more in the first {GP_FIRST}, TPE asks the rest sooner"
        return {"name": "gp+tpe", "reason": reason}
    said = "no number of trials is given" if trials is None else f"{trials} trials"
    return {"name": "gp", "reason": f"{said}: up to {MOST_GP} a Gaussian process finds more than TPE"}


def ask(
    space: Space,
    objectives: Sequence[Objective],
    name: str,
    seed: int,
    told: Sequence[TrialRow],
    count: int,
    given: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Parameters of the next `count` trials, behind those told: a function of the arguments alone.

    `given` are those that the batch begins with, whatever the sampler thinks.
    """
    optuna = _optuna()
    if name == "gp+tpe":
        name = "gp" if len(told) < GP_FIRST else "tpe"
    with _quiet():
        study = optuna.create_study(directions=["minimize"] * len(objectives))
        study.add_trials(_frozen(space, objectives, name, told))
        proposals = list[dict[str, Any]]()
        known = {identity(row["parameters"]) for row in told}
        while len(proposals) < count:
            number = len(told) + len(proposals)
            if len(proposals) < len(given):
                proposal = given[len(proposals)]
            else:
                proposal = _asked(study, space, name, _fresh(name, seed, number))
                if identity(proposal) in known:
                    proposal = _asked(study, space, name, _fresh("random", seed, number))
            known.add(identity(proposal))
            running = optuna.trial.TrialState.RUNNING
            study.add_trial(optuna.trial.create_trial(state=running, **_known(space, name, proposal)))
            proposals.append(proposal)
    return proposals


def _asked(study: optuna.Study, space: Space, name: str, fresh: optuna.samplers.BaseSampler) -> dict[str, Any]:
    """A proposal. Its trial is ended at once: the one that runs gets the values as they were rounded."""
    study.sampler = fresh
    asked = study.ask()
    parameters, values = dict[str, Any](), dict[str, Any]()
    for each in space.dimensions:
        if name == "gp" or each.active(parameters):
            values[each.name] = each.value(_suggested(asked, each))
        if each.active(parameters):
            parameters[each.key] = values[each.name]
    study.tell(asked, state=_optuna().trial.TrialState.FAIL)
    return parameters


def _suggested(asked: optuna.Trial, each: Dimension) -> Any:
    if each.ordered:
        return asked.suggest_int(each.name, 0, len(each.labels) - 1)
    if each.choices is not None:
        return asked.suggest_categorical(each.name, each.labels)
    if each.whole:
        return asked.suggest_int(each.name, int(each.low), int(each.high), step=int(each.step or 1), log=each.log)
    return asked.suggest_float(each.name, each.low, each.high, step=each.step, log=each.log)


def _distribution(each: Dimension) -> optuna.distributions.BaseDistribution:
    found = _optuna().distributions
    if each.ordered:
        return found.IntDistribution(0, len(each.labels) - 1)
    if each.choices is not None:
        return found.CategoricalDistribution(each.labels)
    if each.whole:
        return found.IntDistribution(int(each.low), int(each.high), each.log, int(each.step or 1))
    return found.FloatDistribution(each.low, each.high, each.log, each.step)


def _known(space: Space, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as Optuna keeps them; for GP those that do not exist have their first value."""
    values = space.names(parameters)
    if name == "gp":
        values = {each.name: values.get(each.name, each.corners[0]) for each in space.dimensions}
    there = [each for each in space.dimensions if each.name in values]
    return {
        "params": {each.name: _inner(each, values[each.name]) for each in there},
        "distributions": {each.name: _distribution(each) for each in there},
    }


def _inner(each: Dimension, value: Any) -> Any:
    """A choice as its label or its place; a number as it is."""
    label = canonical_json(value).decode()
    return value if each.choices is None else each.labels.index(label) if each.ordered else label


def _frozen(
    space: Space, objectives: Sequence[Objective], name: str, rows: Sequence[TrialRow]
) -> list[optuna.trial.FrozenTrial]:
    """Trials with their losses. One that did not get to a value has the worst, and is infeasible."""
    create = _optuna().trial.create_trial
    return [
        create(
            values=loss.tolist(),
            constraints=limits or None,
            **_known(space, name, row["parameters"]),
        )
        for row, loss, limits in zip(rows, losses(rows, objectives), _constraints(rows))
    ]


def _constraints(rows: Sequence[TrialRow]) -> list[dict[str, float]]:
    """The same constraints for every trial, as GPSampler asks; none where no trial has any."""
    unreached = [
        row["state"] in ("infeasible", "failed") and not any(value > 0 for value in row["constraints"].values())
        for row in rows
    ]
    names = sorted({name for row in rows for name in row["constraints"]})
    found = [{name: float(row["constraints"].get(name, 0.0)) for name in names} for row in rows]
    if any(unreached):
        for limits, missed in zip(found, unreached):
            limits["reached"] = 1.0 if missed else 0.0
    return found


def _fresh(name: str, seed: int, number: int) -> optuna.samplers.BaseSampler:
    """A sampler for one trial, which knows nothing but the study and the number."""
    samplers, own = _optuna().samplers, int(digest([seed, number])[:8], 16)
    if name == "gp":
        return samplers.GPSampler(
            seed=own, n_startup_trials=STARTUP, deterministic_objective=True, warn_independent_sampling=False
        )
    if name == "tpe":
        return samplers.TPESampler(
            seed=own, n_startup_trials=STARTUP, multivariate=True, group=True, constant_liar=True
        )
    return samplers.RandomSampler(seed=own)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's lines about new studies and interfaces that may change."""
    logging = _optuna().logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise ConfigError("search needs Optuna, which is not installed: pip install optuna") from None
    return optuna
