"""Propose the trials: Optuna's Gaussian processes for short studies and the start of long ones, then its TPE.

According to its source, Optuna 5 treats the trials of a study as follows, and this module uses it accordingly:

- Conditional options. GPSampler only models options that every trial has, and draws all others at random. So it is
  asked for every option, and an option that does not exist in a trial gets a fixed value. TPESampler with `group=True`
  models options jointly if they exist in the same trials, so it is only asked for those that exist.
- Several objectives. GPSampler uses the logarithm of the expected hypervolume improvement. TPESampler sorts the trials
  by rank of domination, then by hypervolume.
- Constraints. GPSampler multiplies the expected improvement by the probability that the point is feasible, and needs
  the same constraints for each trial. TPESampler ranks infeasible trials behind all others.
- Batches. Trials that were proposed earlier in the same batch are running trials of the Optuna study. GPSampler draws
  their outcomes from its model (q-EHVI), and TPESampler counts them among the bad trials (constant liar). Both are
  deterministic for a given seed.
- Repeated points. The same parameters give the same outcome, so nothing would be learned from a point that is proposed
  again. A random point is used instead.
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
from edgekit.search.space import Dimension, Space, parameters_id

if TYPE_CHECKING:
    import optuna

SamplerName = Literal["gp", "gp+tpe", "tpe", "random"]
MAX_GP_TRIALS = 150
"""In a study of up to this many trials, a Gaussian process proposes all of them."""
GP_TRIALS = 40
"""In a longer study, a Gaussian process proposes this many before TPE takes over; see docs/results/search.md."""
STARTUP_TRIALS = 10
"""Trials drawn at random before a model is used."""


def choose_sampler(trials: int | None, requested: SamplerName | None = None) -> SamplerRow:
    """Choose the sampler for a study of `trials` trials (None if only time limits it), and say why."""
    if requested:
        return {"name": requested, "reason": "it was requested"}
    if trials is not None and trials > MAX_GP_TRIALS:
        reason = (
            f"{trials} trials: a Gaussian process finds more in the first {GP_TRIALS}, and TPE proposes the rest faster"
        )
        return {"name": "gp+tpe", "reason": reason}
    amount = "no number of trials is set" if trials is None else f"{trials} trials"
    return {"name": "gp", "reason": f"{amount}: up to {MAX_GP_TRIALS} a Gaussian process finds more than TPE"}


def propose(
    space: Space,
    objectives: Sequence[Objective],
    name: str,
    seed: int,
    finished: Sequence[TrialRow],
    count: int,
    initial: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Propose the parameters of the next `count` trials. The result depends on the arguments alone.

    The first proposals are those in `initial`; the sampler proposes the rest.
    """
    optuna = _optuna()
    if name == "gp+tpe":
        name = "gp" if len(finished) < GP_TRIALS else "tpe"
    with _without_optuna_messages():
        study = optuna.create_study(directions=["minimize"] * len(objectives))
        study.add_trials(_frozen_trials(space, objectives, name, finished))
        proposals = list[dict[str, Any]]()
        known_ids = {parameters_id(row["parameters"]) for row in finished}
        while len(proposals) < count:
            number = len(finished) + len(proposals)
            if len(proposals) < len(initial):
                proposal = initial[len(proposals)]
            else:
                proposal = _propose_one(study, space, name, _new_sampler(name, seed, number))
                if parameters_id(proposal) in known_ids:
                    proposal = _propose_one(study, space, name, _new_sampler("random", seed, number))
            known_ids.add(parameters_id(proposal))
            running = optuna.trial.TrialState.RUNNING
            study.add_trial(optuna.trial.create_trial(state=running, **_optuna_parameters(space, name, proposal)))
            proposals.append(proposal)
    return proposals


def _propose_one(study: optuna.Study, space: Space, name: str, sampler: optuna.samplers.BaseSampler) -> dict[str, Any]:
    """Propose the parameters of one trial.

    The Optuna trial that the sampler filled is ended at once. In its place, `propose` adds a running trial with the
    rounded values.
    """
    study.sampler = sampler
    trial = study.ask()
    parameters, values = dict[str, Any](), dict[str, Any]()
    for dimension in space.dimensions:
        if name == "gp" or dimension.is_active(parameters):
            values[dimension.name] = dimension.value(_suggest(trial, dimension))
        if dimension.is_active(parameters):
            parameters[dimension.key] = values[dimension.name]
    study.tell(trial, state=_optuna().trial.TrialState.FAIL)
    return parameters


def _suggest(trial: optuna.Trial, dimension: Dimension) -> Any:
    if dimension.is_ordered:
        return trial.suggest_int(dimension.name, 0, len(dimension.labels) - 1)
    if dimension.choices is not None:
        return trial.suggest_categorical(dimension.name, dimension.labels)
    if dimension.is_integer:
        return trial.suggest_int(
            dimension.name, int(dimension.low), int(dimension.high), step=int(dimension.step or 1), log=dimension.log
        )
    return trial.suggest_float(dimension.name, dimension.low, dimension.high, step=dimension.step, log=dimension.log)


def _distribution(dimension: Dimension) -> optuna.distributions.BaseDistribution:
    distributions = _optuna().distributions
    if dimension.is_ordered:
        return distributions.IntDistribution(0, len(dimension.labels) - 1)
    if dimension.choices is not None:
        return distributions.CategoricalDistribution(dimension.labels)
    if dimension.is_integer:
        return distributions.IntDistribution(
            int(dimension.low), int(dimension.high), dimension.log, int(dimension.step or 1)
        )
    return distributions.FloatDistribution(dimension.low, dimension.high, dimension.log, dimension.step)


def _optuna_parameters(space: Space, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters in the form that Optuna stores. For "gp", options that do not exist get their first value."""
    values = space.values_by_name(parameters)
    if name == "gp":
        values = {dimension.name: values.get(dimension.name, dimension.corners[0]) for dimension in space.dimensions}
    present = [dimension for dimension in space.dimensions if dimension.name in values]
    return {
        "params": {dimension.name: _optuna_value(dimension, values[dimension.name]) for dimension in present},
        "distributions": {dimension.name: _distribution(dimension) for dimension in present},
    }


def _optuna_value(dimension: Dimension, value: Any) -> Any:
    """The value as Optuna stores it: a choice as its label or its index, and a number unchanged."""
    label = canonical_json(value).decode()
    return value if dimension.choices is None else dimension.labels.index(label) if dimension.is_ordered else label


def _frozen_trials(
    space: Space, objectives: Sequence[Objective], name: str, rows: Sequence[TrialRow]
) -> list[optuna.trial.FrozenTrial]:
    """Finished trials with their losses. A trial without values gets the worst ones, and is infeasible."""
    create = _optuna().trial.create_trial
    return [
        create(
            values=loss.tolist(),
            constraints=limits or None,
            **_optuna_parameters(space, name, row["parameters"]),
        )
        for row, loss, limits in zip(rows, losses(rows, objectives), _constraints(rows))
    ]


def _constraints(rows: Sequence[TrialRow]) -> list[dict[str, float]]:
    """The constraints of each trial, with the same names for all trials, because GPSampler needs that.

    A trial that failed or was rejected, although no excess over a limit was recorded, violates the extra constraint
    "reached". Without any constraint, the dicts are empty.
    """
    never_measured = [
        row["state"] in ("infeasible", "failed") and not any(value > 0 for value in row["constraints"].values())
        for row in rows
    ]
    names = sorted({name for row in rows for name in row["constraints"]})
    constraints = [{name: float(row["constraints"].get(name, 0.0)) for name in names} for row in rows]
    if any(never_measured):
        for limits, is_missing in zip(constraints, never_measured):
            limits["reached"] = 1.0 if is_missing else 0.0
    return constraints


def _new_sampler(name: str, seed: int, number: int) -> optuna.samplers.BaseSampler:
    """A new sampler for one trial, seeded with nothing but the seed of the study and the number of the trial."""
    samplers, trial_seed = _optuna().samplers, int(digest([seed, number])[:8], 16)
    if name == "gp":
        return samplers.GPSampler(
            seed=trial_seed,
            n_startup_trials=STARTUP_TRIALS,
            deterministic_objective=True,
            warn_independent_sampling=False,
        )
    if name == "tpe":
        return samplers.TPESampler(
            seed=trial_seed, n_startup_trials=STARTUP_TRIALS, multivariate=True, group=True, constant_liar=True
        )
    return samplers.RandomSampler(seed=trial_seed)


@contextmanager
def _without_optuna_messages() -> Iterator[None]:
    """Suppress Optuna's messages about new studies and experimental interfaces."""
    logging = _optuna().logging
    level = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise ConfigError("search needs Optuna, which is not installed: pip install optuna") from None
    return optuna
