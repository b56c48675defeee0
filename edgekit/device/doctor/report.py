"""The doctor's report, as a dictionary for JSON and as text of 80 columns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from edgekit.device.doctor import ERROR, DoctorCase, DoctorFinding, blocks, wheels

NAMES = {"asimddp": "dotprod", "asimdhp": "fp16"}


def to_dict(case: DoctorCase, findings: list[DoctorFinding]) -> dict[str, Any]:
    """Return the device, the findings and the state of each interpreter for JSON."""
    facts, subject = case.facts, case.subject
    return {
        "ok": not blocks(findings),
        "findings": [finding.to_dict() for finding in findings],
        "device": {
            "machine": facts.machine,
            "system": facts.system,
            "libc": _libc(case),
            "processor": facts.processor,
            "instructions": list(facts.instructions),
            "emulator": facts.emulator or None,
            "cores": facts.cores,
            "gpu": list(facts.render_nodes),
            "npu": list(facts.accel_nodes),
            **(facts.reading.to_dict() if facts.reading else {}),
        },
        "python": {
            "version": ".".join(map(str, facts.python)),
            "executable": facts.executable,
            "bits": facts.bits,
            "externally_managed": facts.externally_managed and not facts.in_venv,
            "numpy": _version(case, "numpy"),
            "pillow": _version(case, "pillow"),
            "tokenizers": _version(case, "tokenizers"),
        },
        "interpreters": [interpreter_state(case, name, findings) for name in wheels.PREFERENCE],
        "bundle": subject and {"path": subject.path, "target": subject.target, "model_bytes": subject.model_bytes},
    }


def interpreter_state(case: DoctorCase, name: str, findings: list[DoctorFinding]) -> dict[str, Any]:
    """Return what is known of one interpreter on this device.

    The `state` of an installed interpreter is "ready" or "blocked". The state of a missing one is "installable" or "no
    wheel", or "not installed" on a system that the table of wheels does not cover. If the options or the bundle rule
    the interpreter out, the state is "not asked".
    """
    facts, distribution = case.facts, wheels.distribution_of(name)
    wheel = wheels.newest_wheel(distribution, facts.python, facts.architecture, facts.glibc)
    installed = _version(case, distribution)
    has_problem = any(each.interpreter == name and not each.code.startswith("slow") for each in findings)
    is_blocked = any(each.severity == ERROR and each.interpreter is None for each in findings)
    state = (
        ("blocked" if has_problem or is_blocked else "ready") if installed else ("installable" if wheel else "no wheel")
    )
    if facts.system != "Linux" and not installed:
        state = "not installed"  # the table of wheels covers Linux only
    if case.target and name not in case.interpreters:
        state = "not asked"
    targets = list(wheels.INTERPRETERS[name][1])
    newest = wheel.version if wheel else None
    return {
        "name": name,
        "distribution": distribution,
        "installed": installed,
        "wheel": newest,
        "state": state,
        "targets": targets,
    }


def text_lines(case: DoctorCase, findings: list[DoctorFinding]) -> Iterator[str]:
    """Yield the report as lines of text."""
    yield "device"
    yield from _rows(_device(case))
    yield "python"
    yield from _rows(_python(case))
    yield "interpreters"
    for row in (interpreter_state(case, name, findings) for name in wheels.PREFERENCE):
        has = row["installed"] or "-"
        notes = {
            "installable": f"installable ({row['wheel']})",
            "no wheel": "no wheel for this device",
            "not asked": "not checked",
        }
        note = notes.get(row["state"], row["state"])
        yield f"  {row['name']:<15} {has:<11} {note:<25} {', '.join(row['targets'])}"
    if case.subject:
        yield "bundle"
        yield from _rows(_bundle(case))
    for number, finding in enumerate(findings):
        yield ""
        yield f"{finding.severity:<8} {finding.cause}  [{finding.code}]"
        is_repeated = number > 0 and findings[number - 1].fix == finding.fix
        yield f"{'    fix':<8} {'the same' if is_repeated else finding.fix}"
    errors = sum(finding.severity == ERROR for finding in findings)
    warnings = len(findings) - errors
    yield ""
    yield (
        f"{_count(errors, 'finding')} of {len(findings)} block" + ("s" if errors == 1 else "")
        if errors
        else ("No problem found" + (f", {_count(warnings, 'warning')}" if warnings else ""))
    )


def _device(case: DoctorCase) -> Iterator[tuple[str, str]]:
    facts, reading = case.facts, case.facts.reading
    yield "machine", ", ".join(each for each in (facts.machine, facts.system, _libc(case)) if each)
    yield "processor", facts.processor or "not reported by the kernel"
    yield "has", " ".join(NAMES.get(each, each) for each in facts.instructions) or "not reported by the kernel"
    yield "cores", "unknown" if facts.cores is None else f"{facts.cores:g}"
    if not reading:
        return
    mhz = f"{reading.frequency_mhz:,.0f}" if reading.frequency_mhz else "?"
    most = f" of {reading.frequency_max_mhz:,.0f}" if reading.frequency_max_mhz else ""
    yield "frequency", f"{mhz}{most} MHz, governor {reading.governor or 'not shown'}"
    degrees = "not shown" if reading.temperature_c is None else f"{reading.temperature_c:.0f} °C"
    words = {None: "throttling not shown", True: "throttled", False: "not throttled"}
    yield (
        "temperature",
        f"{degrees}, {words[reading.throttled if reading.throttled is not None else reading.throttled_since_boot]}",
    )
    sizes = reading.available_bytes, reading.total_bytes, reading.resident_bytes
    free, total, resident = (_mib(size) for size in sizes)
    yield "memory", f"{free} of {total} MiB free, this process {resident} MiB"
    if facts.render_nodes or facts.accel_nodes:
        yield "accelerators", ", ".join((*facts.render_nodes, *facts.accel_nodes))


def _python(case: DoctorCase) -> Iterator[tuple[str, str]]:
    facts = case.facts
    yield "version", f"{'.'.join(map(str, facts.python))}, {facts.bits} bits, {facts.executable}"
    if facts.externally_managed and not facts.in_venv:
        yield "packages", "belong to the system (PEP 668): pip works in a virtual environment only"
    for name in ("numpy", "pillow", "tokenizers"):
        yield name, _version(case, name) or "not installed"


def _bundle(case: DoctorCase) -> Iterator[tuple[str, str]]:
    subject = case.subject
    if subject is None:
        return
    yield "file", os.path.basename(subject.path)
    if subject.target is None:
        return
    yield "model", f"{subject.target}, {subject.model_bytes:,} bytes, takes {subject.kind.rstrip('s')}s"
    if subject.needs:
        names = sorted({each.name for each in subject.needs.operators})
        shown = ", ".join(names[:4]) + (f", … ({len(names)})" if len(names) > 4 else "")
        yield "operators", shown
        if subject.needs.opsets:
            yield "opsets", ", ".join(f"{name} {version}" for name, version in subject.needs.opsets)


def _rows(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    for word, value in rows:
        yield from _wrapped(f"  {word:<15} ", value)


def _wrapped(head: str, value: str, width: int = 80) -> Iterator[str]:
    """Yield a value in lines of at most `width` columns, if its words are short enough."""
    line = head
    for word in value.split(" "):
        if len(line) + len(word) > width and line.strip() and len(line) > len(head):
            yield line.rstrip()
            line = " " * len(head)
        line += word + " "
    yield line.rstrip()


def _libc(case: DoctorCase) -> str:
    if case.facts.glibc:
        return "glibc " + ".".join(map(str, case.facts.glibc))
    return "musl" if case.facts.musl else ""


def _version(case: DoctorCase, distribution: str) -> str | None:
    installed = case.facts.has(distribution)
    return installed.version if installed else None


def _mib(size: int | None) -> str:
    return "?" if size is None else f"{size / 2**20:,.0f}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
