"""The preflight checks, which run in the process that `preflight` starts."""

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
from edgekit.workbook.preflight import ACCURACY, CURRENT_CHECK

SAMPLES = 4
FILE_LIMIT_S = 60.0


def check(config: str, settings: str, folder: str) -> dict[str, str]:
    """Load the plan, run the checks and return their results by heading."""
    return check_plan(load_plan(Path(config), settings, checked_before=True), Path(folder))


def check_plan(plan: Plan, folder: Path) -> dict[str, str]:
    """Run the checks in this process. The file `CURRENT_CHECK` in `folder` names the check in progress."""
    make_importable(plan)
    return dict(_checks(plan, folder / CURRENT_CHECK))


def _checks(plan: Plan, current: Path) -> Iterator[tuple[str, str]]:
    current.write_text("data", encoding="utf-8")
    data = load_data(plan.data)
    sizes = ", ".join(f"{len(getattr(data, name)):,} {name}" for name in ("train", "calibration", "validation"))
    check_sample_counts(data, {stage: plan.section(stage) for stage in plan.pipeline})
    yield "Samples", f"{data.sample_description}: {sizes}; {len(data.classes)} {_output_noun(data)}"
    if tasks.load_task(data.task).AT_MOST_ONE and (fault := _budget_fault(plan, len(data.validation))):
        yield ACCURACY, fault
    if data.notes:
        yield "Notes", "\n".join(data.notes)
    try:
        preprocessed_shape(data, plan.run.preprocess)
    except RunnerError as error:
        raise ConfigError(f"preprocess: {error}") from None
    bundle: Any = plan.stages["bundle"]
    streams.check_options(data, bundle)
    current.write_text(plan.source.name if plan.source else str(plan.run.model.builder), encoding="utf-8")
    _check_batches(plan, data)
    _check_training_options(plan, data)
    yield "Network", _check_model_file(plan, data) if plan.source else _check_baseline(plan, data)
    for field, network in _configured_networks(plan):
        current.write_text(f"{field}: {network.builder}", encoding="utf-8")
        _check_network(plan, data, field, network)


def _budget_fault(plan: Plan, samples: int) -> str:
    """Return why there are too few validation samples to show that the budget is met, or an empty text."""
    budget = plan.run.budget
    if accuracy_drop.can_meet(samples, budget.accuracy_confidence, budget.accuracy_drop_pp):
        return ""
    reason = accuracy_drop.too_few_samples(samples, budget.accuracy_confidence)
    return f"budget of {budget.accuracy_drop_pp:g} pp: {reason}"


def _output_noun(data: Data) -> str:
    return "values" if data.task == "regression" else "classes"


def _check_model_file(plan: Plan, data: Data) -> str:
    """Run a model file on a few samples in a child process, and check its inputs, outputs, layers and types."""
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
        head=plan.run.model.head,
        keypoints=data.keypoint_count,
    )
    return f"{TITLES[opened.kind]}, which answers these samples"


def _check_baseline(plan: Plan, data: Data) -> str:
    from edgekit.models import dry_run, output_check, store
    from edgekit.models.eager import eager_input
    from edgekit.models.from_artifact import spec_for
    from edgekit.models.patch_features import FIT_METHOD

    model = plan.run.model
    spec = spec_for(data, model.builder, model.kwargs, plan.run.preprocess, pretrained=model.pretrained)
    module = store.build(spec, plan.run.seed)
    if plan.weights:
        store.load_weights(module, plan.weights)
    x = eager_input(data.validation.x[:SAMPLES], spec.preprocess)
    is_fitted = hasattr(module, FIT_METHOD)
    if is_fitted and "distill" in plan.stages:
        raise ConfigError(
            f"distill: is configured, but {spec.called} is fitted to the train split once and trains no student; leave "
            "distill out, and prune and quantize with it"
        )
    dry_run.check_network(module, spec, x, trains=not plan.weights and not is_fitted)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    weights_note = (
        f"weights of {plan.weights.name}" if plan.weights else f"to be {'fitted' if is_fitted else 'trained'}"
    )
    scale_note = output_check.shared_scale_note(module, spec, x)
    return f"{parameters:,} parameters, {weights_note}; answers these samples{f'; {scale_note}' if scale_note else ''}"


def _configured_networks(plan: Plan) -> Iterator[tuple[str, NetworkConfig]]:
    distill: Any = plan.stages.get("distill")
    if distill is None:
        return
    if distill.student:
        yield "distill.student", distill.student
    for number, candidate in enumerate(distill.candidates):
        yield f"distill.candidates.{number}", candidate
    for number, teacher in enumerate(distill.teachers):
        if teacher.builder:
            yield (
                f"distill.teachers.{number}",
                NetworkConfig(builder=teacher.builder, kwargs=teacher.kwargs, pretrained=teacher.pretrained),
            )


def _trains_like_student(teacher: Any) -> bool:
    return bool(teacher.builder and not teacher.training)


def _check_batches(plan: Plan, data: Data) -> None:
    """Check that the batches of an embedding trained on labels alone have enough samples of each label.

    A batch that is split into shards is checked shard by shard. The trainings on labels alone are those of the
    baseline, of the teachers, of each candidate and of a lone student.

    Raises
    ------
    ConfigError
        A batch holds too few samples of a label.
    """
    from edgekit.training.data_parallel.session import check_positives

    if data.task != "embedding":
        return
    profile: Any = plan.stages["profile"]
    distill: Any = plan.stages.get("distill")
    trained: dict[str, TrainOptions] = {} if plan.source or plan.weights else {"profile": profile}
    for number, teacher in enumerate(distill.teachers if distill else ()):
        if teacher.builder and teacher.training:
            trained[f"distill.teachers.{number}.training"] = teacher.training
    if distill and (distill.lone_student or distill.candidates or any(map(_trains_like_student, distill.teachers))):
        trained["distill"] = distill
    shares = plan.run.training.shares
    for field, options in trained.items():
        try:
            check_positives(data.train.y, options.batch_size, shares)
        except ConfigError as error:
            raise ConfigError(f"{field}: {error}" if shares > 1 else f"{field}.{error}") from None


def _check_training_options(plan: Plan, data: Data) -> None:
    """Check the augmentations, the optimizer's arguments and the label smoothing of every training.

    Raises
    ------
    ConfigError
        An augmentation or label smoothing cannot be applied to these samples or labels, or torch's optimizer refuses
        an argument.
    """
    from edgekit.training import augmentations, losses, optimizers

    trained = {stage: options for stage, options in plan.stages.items() if isinstance(options, TrainOptions)}
    distill: Any = plan.stages.get("distill")
    for number, teacher in enumerate(distill.teachers if distill else ()):
        if teacher.training:
            trained[f"distill.teachers.{number}.training"] = teacher.training
    for field, options in trained.items():
        augmentations.active(options.augmentations, data, f"{field}.{augmentations.FIELD}")
        optimizers.check(options, f"{field}.{optimizers.FIELD}")
        losses.check_label_smoothing(options.label_smoothing, data.task, f"{field}.label_smoothing")


def _check_network(plan: Plan, data: Data, field: str, network: NetworkConfig) -> None:
    from edgekit.models import dry_run, store
    from edgekit.models.from_artifact import spec_for

    model_kwargs = {} if plan.source else plan.run.model.kwargs
    # any builder will do here, because the outputs depend only on the data and the arguments
    expected_outputs = spec_for(data, network.builder, model_kwargs, plan.run.preprocess).outputs
    try:
        spec = spec_for(data, network.builder, network.kwargs, plan.run.preprocess, pretrained=network.pretrained)
        if spec.outputs != expected_outputs:
            raise ConfigError(
                f"{network.builder} gives outputs of shape {spec.outputs}, but the baseline gives "
                f"{expected_outputs}; give both the same kwargs.{store.DIMENSIONS}"
            )
        dry_run.build_and_check(spec, plan.run.seed, data)
    except EdgekitError as error:
        raise type(error)(f"{field}: {error}") from None
