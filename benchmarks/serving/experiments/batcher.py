"""The batcher as it is against every fixed size, at each number of connections; inline is the size 1.

A fixed size above the number of connections never fills and is left out.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.environments import NotRun
from benchmarks.serving import figures, ours
from benchmarks.serving.figures import Target
from benchmarks.serving.machine import Server
from benchmarks.serving.plan import Plan, sample_of
from benchmarks.serving.report import Finding
from benchmarks.serving.wrk import Post, Wrk
from edgekit.serve.batcher import SIZES

TITLE = "the batcher over the best fixed size, by connections, digits on LiteRT, OpenVINO and ONNX"
TARGETS = ("tflite", "openvino", "onnx")
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
SECONDS, WARM_S = 0.3, 0.1
OURS = "as it is"


def measure(plan: Plan) -> Finding:
    """All servers hold all three bundles; one is under load at a time."""
    finding = Finding("batcher", TITLE)
    paths = {}
    for target in TARGETS:
        try:
            paths[target] = plan.digits(target)
        except NotRun as reason:
            finding.missing.append(f"{target}: {reason}")
    with ExitStack() as stack:
        bundles = list(paths.values())
        servers: dict[str, Server] = {
            OURS: ours.server("batcher", bundles),
            "1, inline": ours.server("fixed-1", bundles, "--no-batch"),
            **{str(size): ours.fixed(f"fixed-{size}", bundles, size) for size in SIZES[1:]},
        }
        for server in servers.values():
            stack.enter_context(server)
        finding.notes += ours.proofs(servers[OURS])
        for target, path in paths.items():
            model = f"digits-{target}" if len(paths) > 1 else "digits"
            try:
                _target(plan, finding, target, servers, ours.raw(model, sample_of(path)))
            except NotRun as reason:
                finding.missing.append(f"{target}: {reason}")
    return finding


def usable(servers: dict[str, Server], model_path: str) -> tuple[dict[str, Server], list[str]]:
    """Those that run their size of this bundle, and the sizes that it does not run."""
    found, lacking = {}, []
    for name, server in servers.items():
        config = ours.ask(server.address, model_path.replace("/infer", "/config"))
        sizes = config.get("dynamic_batching", {}).get("preferred_batch_size", [])
        if name.isdigit() and int(name) not in sizes:
            lacking.append(name)
        else:
            found[name] = server
    return found, lacking


def _target(plan: Plan, finding: Finding, target: str, servers: dict[str, Server], post: Post) -> None:
    servers, lacking = usable(servers, post.path)
    if lacking:
        sizes = ", ".join(lacking)
        finding.missing.append(f"{target}, fixed sizes {sizes}: the bundle does not run in such batches here")
    loads = {name: Wrk(f"{target}-{name.split(',')[0].replace(' ', '-')}", each.address, post)
             for name, each in servers.items()}  # fmt: skip
    found: dict[int, dict[str, list[float]]] = {}
    for count in CONNECTIONS:
        names = [name for name in loads if not name.isdigit() or int(name) <= count]
        found[count] = {name: [] for name in names}
    for number, order in enumerate(plan.turns(CONNECTIONS)):
        for count in order:
            names = list(found[count])
            first = number % len(names)
            for name in names[first:] + names[:first]:
                loads[name].run(WARM_S, count)
                found[count][name].append(loads[name].run(SECONDS * plan.scale, count).per_s)
    finding.rounds[target] = {str(count): rates for count, rates in found.items()}
    tell(finding, target, found)


def tell(finding: Finding, target: str, found: dict[int, dict[str, list[float]]]) -> None:
    """A row for each number of connections, and a verdict against its best fixed size."""
    sizes = ["1, inline", *(str(size) for size in SIZES[1:])]
    finding.table.append([target, OURS, *(f"fixed {size}" for size in sizes), "over the best"])
    for count, rates in found.items():
        middles = {name: figures.of(values).middle for name, values in rates.items()}
        best = max((name for name in rates if name != OURS), key=lambda name: middles[name])
        share = figures.quotient(rates[OURS], rates[best])
        cells = [f"{middles[name]:.0f}" if name in middles else "-" for name in (OURS, *sizes)]
        finding.table.append([f"{count} connections", *cells, f"{share.text('{:.3f}')} of {best}"])
        what = f"{target}, {count} connections, as it is over the best fixed size ({best})"
        finding.evaluate(Target(what, 0.95), share, "{:.3f}")
