"""The model: operators and formats that the interpreters on this device do not support."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.doctor import ERROR, DoctorCase, DoctorFinding, advice, tflite_versions, wheels
from edgekit.runner.bundle import manifest
from edgekit.runner.operators import ModelRequirements, Operator, onnx
from edgekit.runner.operators.tflite import FLEX

MICROSOFT = ("com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training")
"""Domains of operators that ONNX Runtime provides in addition to the standard domain."""
CONVERT = "convert the model with builtin operators only, and build the bundle again"


def newer_format(case: DoctorCase) -> Iterator[DoctorFinding]:
    if case.subject and case.subject.format > manifest.FORMAT:
        cause = f"the bundle has format {case.subject.format}, but this runner reads {manifest.FORMAT}"
        yield DoctorFinding(
            "bundle-format", ERROR, cause, "update the runner: copy the edgerun.pyz that is beside the bundle"
        )


def unsupported_interpreter(case: DoctorCase) -> Iterator[DoctorFinding]:
    name = case.interpreter
    known = wheels.interpreters_for(case.target) if case.target else list(wheels.PREFERENCE)
    if name and name not in known:
        what = f"{case.target} models" if case.target else "a bundle"
        cause = f"--interpreter {name}: it does not open {what}"
        yield DoctorFinding(
            "interpreter-unknown", ERROR, cause, f"use --interpreter {known[0]}; known: {', '.join(known)}"
        )


def tflite_operators(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check for builtin operators that the installed release lacks, or supports only in an older version."""
    for name, needs in _pairs(case, "tflite"):
        distribution = case.facts.has(wheels.distribution_of(name))
        supported = (
            tflite_versions.highest_versions(wheels.distribution_of(name), distribution.release)
            if distribution
            else None
        )
        newer = [] if supported is None else [each for each in needs.operators if _too_new(each, supported)]
        if not distribution or not newer:
            continue
        worst = newer[0]
        has = (supported or {}).get(worst.name, 0)
        more = f" (and {len(newer) - 1} more)" if len(newer) > 1 else ""
        cause = (
            f"the model needs {worst.name} version {worst.version}{more}; {distribution.name} {distribution.version} "
        )
        cause += f"has version {has}" if has else "lacks it"
        line = _upgrade(case, name, "litert") or CONVERT
        yield DoctorFinding("operator-too-new", ERROR, cause, line, name)


def flex_operators(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check for TensorFlow's own operators (flex) in a tflite file. No bundle may contain them: they can open files."""
    names = _custom(case, flex=True)
    if names:
        cause = f"the model uses TensorFlow's {_short_list(names)} (SELECT_TF_OPS), which can open any file"
        yield DoctorFinding(
            "operator-flex", ERROR, cause, "convert it with TFLITE_BUILTINS only, and build the bundle again"
        )


def custom_operators(case: DoctorCase) -> Iterator[DoctorFinding]:
    names = _custom(case, flex=False)
    if names:
        cause = f"the model uses custom operators that no interpreter has: {_short_list(names)}"
        yield DoctorFinding("operator-custom", ERROR, cause, CONVERT)


def onnx_opset(case: DoctorCase) -> Iterator[DoctorFinding]:
    for name, needs in _pairs(case, "onnx"):
        limits, version = _onnx_limits(case, name)
        opset = dict(needs.opsets).get("ai.onnx", 0)
        if limits and opset > limits[0]:
            cause = f"the model uses ONNX opset {opset}; onnxruntime {version} supports up to {limits[0]}"
            fix = _upgrade(case, name, name) or f"export the model with opset {limits[0]}, and build the bundle again"
            yield DoctorFinding("onnx-opset", ERROR, cause, fix, name)


def onnx_ir(case: DoctorCase) -> Iterator[DoctorFinding]:
    for name, needs in _pairs(case, "onnx"):
        limits, version = _onnx_limits(case, name)
        if limits and (needs.ir_version or 0) > limits[1]:
            cause = f"the model has ONNX IR version {needs.ir_version}; onnxruntime {version} reads up to {limits[1]}"
            fix = (
                _upgrade(case, name, name) or f"save the model with ir_version={limits[1]}, and build the bundle again"
            )
            yield DoctorFinding("onnx-ir", ERROR, cause, fix, name)


def onnx_domains(case: DoctorCase) -> Iterator[DoctorFinding]:
    for name, needs in _pairs(case, "onnx"):
        foreign = {each.domain for each in needs.operators if each.domain != "ai.onnx"}
        foreign -= set(MICROSOFT) if name == "onnxruntime" else set()
        if foreign:
            cause = (
                f"the model uses operators of {', '.join(sorted(foreign))}, which {wheels.distribution_of(name)} lacks"
            )
            known = _upgrade(case, name, "onnxruntime") if foreign <= set(MICROSOFT) else None
            fix = known or "export the model with standard ONNX operators only, and build the bundle again"
            yield DoctorFinding("operator-custom", ERROR, cause, fix, name)


def openvino_opset(case: DoctorCase) -> Iterator[DoctorFinding]:
    """Check for operators of a newer set than the installed openvino defines. Its package has a folder for each set."""
    for name, needs in _pairs(case, "openvino"):
        distribution, newest = case.facts.has("openvino"), max(case.facts.opsets, default=0)
        newer = [each for each in needs.operators if each.domain == "opset" and each.version > newest]
        if distribution and newest and newer:
            worst = max(newer, key=lambda each: each.version)
            cause = (
                f"the model needs {worst.name} of opset{worst.version}; "
                f"openvino {distribution.version} supports up to opset{newest}"
            )
            fix = _upgrade(case, name, name) or "build the bundle with an older openvino"
            yield DoctorFinding("openvino-opset", ERROR, cause, fix, name)


def _pairs(case: DoctorCase, target: str) -> list[tuple[str, ModelRequirements]]:
    """Return pairs of an installed interpreter and what the model needs; none if the bundle has another target."""
    if not case.subject or case.subject.target != target or case.subject.needs is None:
        return []
    return [(name, case.subject.needs) for name in case.installed]


def _custom(case: DoctorCase, flex: bool) -> list[str]:
    if not case.subject or case.subject.target != "tflite" or case.subject.needs is None:
        return []
    names = [each.name for each in case.subject.needs.operators if each.domain == "custom"]
    return [name for name in names if name.startswith(FLEX) == flex]


def _too_new(operator: Operator, known: dict[str, int]) -> bool:
    return operator.domain == "builtin" and operator.version > known.get(operator.name, 0)


def _onnx_limits(case: DoctorCase, name: str) -> tuple[tuple[int, int] | None, str]:
    distribution = case.facts.has(wheels.distribution_of(name))
    return (
        (onnx.newest_supported(distribution.release), distribution.version)
        if distribution and name == "onnxruntime"
        else (None, "")
    )


def _upgrade(case: DoctorCase, name: str, better: str) -> str | None:
    """Return the command that installs `better` in place of the interpreter `name`.

    Returns None if no wheel fits the device, or if `better` is `name` and its newest release is installed already.
    """
    from edgekit.device.hardware.facts import version_numbers

    facts, distribution = case.facts, case.facts.has(wheels.distribution_of(name))
    wheel = wheels.newest_wheel(wheels.distribution_of(better), facts.python, facts.architecture, facts.glibc)
    if not wheel or not distribution or (name == better and distribution.release >= version_numbers(wheel.version)):
        return None
    if name == better:
        return advice.install_command(facts, "--upgrade", f"{wheel.distribution}=={wheel.version}")
    return advice.interpreter_command(facts, better)


def _short_list(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


CHECKS = (
    newer_format, unsupported_interpreter, tflite_operators, flex_operators, custom_operators, onnx_opset, onnx_ir,
    onnx_domains, openvino_opset,
)  # fmt: skip
