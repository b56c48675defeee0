"""The preflight checks themselves, in the process that `preflight` starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.core import tasks
from edgekit.core.config import NetworkConfig, TrainOptions
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.core.tasks import accuracy_drop
from edgekit.data import Data
from edgekit.data import load as load_data
from edgekit.data.checks import preprocessed_shape
from edgekit.runner.errors import RunnerError
from edgekit.stages.bundle import streams
from edgekit.workbook.config_file import check_sample_counts
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.preflight import ACCURACY, AT

SAMPLES = 4
FILE_LIMIT_S = 60.0


def check(config: str, settings: str, folder: str) -> dict[str, str]:
    """What the checks of a plan found, by heading; raises what they raise."""
    return checked(load_plan(Path(config), settings, known=True), Path(folder))


def checked(plan: Plan, folder: Path) -> dict[str, str]:
    """The same, in this process; the file `AT` in `folder` names what is being checked."""
    make_importable(plan)
    return dict(_checks(plan, folder / AT))


def _checks(plan: Plan, at: Path) -> Iterator[tuple[str, str]]:
    at.write_text("data", encoding="utf-8")
    data = load_data(plan.data)
    sizes = ", ".join(f"{len(getattr(data, name)):,} {name}" for name in ("train", "calibration", "validation"))
    check_sample_counts(data, {stage: plan.section(stage) for stage in plan.pipeline})
    yield "Samples", f"{data.sample_description}: {sizes}; {len(data.classes)} {_outputs(data)}"
    if tasks.load_task(data.task).AT_MOST_ONE and (fault := _budget(plan, len(data.validation))):
        yield ACCURACY, fault
    if data.notes:
        yield "Notes", "\n".join(data.notes)
    try:
        preprocessed_shape(data, plan.run.preprocess)
    except RunnerError as error:
        raise ConfigError(f"preprocess: {error}") from None
    bundle: Any = plan.stages["bundle"]
    streams.check(data, bundle)
    at.write_text(plan.source.name if plan.source else str(plan.run.model.builder), encoding="utf-8")
    _check_batches(plan, data)
    _check_augmentations(plan, data)
    yield "Network", _file(plan, data) if plan.source else _baseline(plan, data)
    for place, network in _students(plan):
        at.write_text(f"{place}: {network.builder}", encoding="utf-8")
        _check_network(plan, data, place, network)


def _budget(plan: Plan, samples: int) -> str:
    """Why so few validation samples cannot show the budget met; empty where they can. A network may still gain."""
    budget = plan.run.budget
    if accuracy_drop.can_meet(samples, budget.accuracy_confidence, budget.accuracy_drop_pp):
        return ""
    reason = accuracy_drop.too_few_samples(samples, budget.accuracy_confidence)
    return f"budget of {budget.accuracy_drop_pp:g} pp: {reason}"


def _outputs(data: Data) -> str:
    return "values" if data.task == "regression" else "classes"


def _file(plan: Plan, data: Data) -> str:
    """Run the file on a few samples in a child process; its inputs, outputs, layers and types are checked there."""
    from edgekit.models.files import TITLES
    from edgekit.training.teachers import model_file

    assert plan.source is not None
    opened = model_file.open_file(plan.source, plan.run.preprocess)
    model_file.logits_and_facts(
        opened,
        data.validation.x[:SAMPLES],
        classes=len(data.classes),
        timeout_s=FILE_LIMIT_S,
        threads=1,
        task=data.task,
        tensors=data.tensors or (),
    )
    return f"{TITLES[opened.kind]}, which answers these samples"


def _baseline(plan: Plan, data: Data) -> str:
    from edgekit.models import dry_run, output_check, store
    from edgekit.models.eager import eager_input
    from edgekit.models.from_artifact import spec_for

    spec = spec_for(data, plan.run.model.builder, plan.run.model.kwargs, plan.run.preprocess)
    module = store.build(spec, plan.run.seed)
    if plan.weights:
        store.load_weights(module, plan.weights)
    x = eager_input(data.validation.x[:SAMPLES], spec.preprocess)
    dry_run.check_network(module, spec, x, trains=not plan.weights)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    trained = f"weights of {plan.weights.name}" if plan.weights else "to be trained"
    shared = output_check.shared_scale_note(module, spec, x)
    return f"{parameters:,} parameters, {trained}; answers these samples{f'; {shared}' if shared else ''}"


def _students(plan: Plan) -> Iterator[tuple[str, NetworkConfig]]:
    distill: Any = plan.stages.get("distill")
    if distill is None:
        return
    if distill.student:
        yield "distill.student", distill.student
    for place, candidate in enumerate(distill.candidates):
        yield f"distill.candidates.{place}", candidate
    for place, teacher in enumerate(distill.teachers):
        if teacher.builder:
            yield f"distill.teachers.{place}", NetworkConfig(builder=teacher.builder, kwargs=teacher.kwargs)


def _as_the_student(teacher: Any) -> bool:
    return bool(teacher.builder and not teacher.training)


def _check_batches(plan: Plan, data: Data) -> None:
    """ConfigError for an embedding that is to be trained on labels alone, and whose batches hold too few of a label.

    A batch that is divided into shares counts by its shares. So counts the batch of a student that is trained alone,
    as each candidate is, and of a teacher that is trained as the student is.
    """
    from edgekit.training.shares.data_parallel import check_positives

    if data.task != "embedding":
        return
    profile: Any = plan.stages["profile"]
    distill: Any = plan.stages.get("distill")
    trained: dict[str, TrainOptions] = {} if plan.source or plan.weights else {"profile": profile}
    for place, teacher in enumerate(distill.teachers if distill else ()):
        if teacher.builder and teacher.training:
            trained[f"distill.teachers.{place}.training"] = teacher.training
    if distill and (distill.lone_student or distill.candidates or any(map(_as_the_student, distill.teachers))):
        trained["distill"] = distill
    shares = plan.run.training.shares
    for where, options in trained.items():
        try:
            check_positives(data.train.y, options.batch_size, shares)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}" if shares > 1 else f"{where}.{error}") from None


def _check_augmentations(plan: Plan, data: Data) -> None:
    """ConfigError for an augmentation that makes no sense of these samples and labels."""
    from edgekit.training import augmentations

    trained = {stage: options for stage, options in plan.stages.items() if isinstance(options, TrainOptions)}
    distill: Any = plan.stages.get("distill")
    for place, teacher in enumerate(distill.teachers if distill else ()):
        if teacher.training:
            trained[f"distill.teachers.{place}.training"] = teacher.training
    for where, options in trained.items():
        augmentations.active(options.augmentations, data, f"{where}.{augmentations.FIELD}")


def _check_network(plan: Plan, data: Data, place: str, network: NetworkConfig) -> None:
    from edgekit.models import dry_run, store
    from edgekit.models.from_artifact import spec_for

    given = {} if plan.source else plan.run.model.kwargs
    wanted = spec_for(data, network.builder, given, plan.run.preprocess).outputs  # whatever builds it
    try:
        spec = spec_for(data, network.builder, network.kwargs, plan.run.preprocess)
        if spec.outputs != wanted:
            raise ConfigError(
                f"{network.builder} gives outputs of shape {spec.outputs}, the baseline of {wanted}; give both the "
                f"same kwargs.{store.DIMENSIONS}"
            )
        dry_run.build_and_check(spec, plan.run.seed, data)
    except EdgekitError as error:
        raise type(error)(f"{place}: {error}") from None
