"""The page docs/results/drift.md, written out of the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.drift import tables
from benchmarks.drift.measured import OURS, Result
from benchmarks.drift.plan import LARGE, WINDOW, Plan
from benchmarks.drift.pools import STEP
from benchmarks.drift.streams import BEFORE, ORDERS, RAMP

BESIDE = (OURS, "ADWIN, all statistics, budget", "Page-Hinkley, all statistics, budget", "K-S windows, budget")


def text(results: Sequence[Result], plan: Plan, facts: dict[str, Any]) -> str:
    """The whole page."""
    parts = [_head(results, plan, facts), _first(results), _drifts(results), _side(results, plan), _false(results),
             _all(results), _how(results, plan)]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _head(results: Sequence[Result], plan: Plan, facts: dict[str, Any]) -> str:
    rows = [
        [r.subject["name"], r.subject["what"], f"{r.subject['samples']:,}", f"{r.subject['references']:,}",
         f"{r.subject['accuracy']:.1%}".replace("%", " %")]
        for r in results
    ]  # fmt: skip
    subjects = tables.markdown(["subject", "samples and model", "samples", "in the reference", "accuracy"], rows, 2)
    return f"""
# How early drift is found

`python -m benchmarks.drift` writes this page and its figure. `make drift` makes the environment of the peers first.
Drifts are seeded and applied to samples that the model never learnt. The answers are those of a real model.
The sounds and the sensor's windows are synthetic: no recording is used. All pictures are real.

{subjects}

A stream has {BEFORE[0]} to {BEFORE[1]:,} sound samples, then the drift, and ends {plan.after:,} samples later.
Each drift has {plan.seeds} streams, each with other validation samples in the reference.
The monitor is asked every {STEP} samples. Its budget is one false alarm in 100,000 sound samples.
Measuring took {facts["cpu_s"] / 60:.0f} minutes of processor time on {facts["cpu"]}, {facts["date"]}.
"""


def _first(results: Sequence[Result]) -> str:
    weak, strong = tables.found(results, OURS, "weak"), tables.found(results, OURS, "strong")
    alarms, samples = tables.rate(results, OURS, "independent")
    return f"""
## In short

There are {strong[1]} strong drifts and {weak[1]} weak ones. A drift counts as found where most of its streams show it.
The monitor finds {strong[0]} strong drifts. In the median stream it takes {tables.delay(strong[2])} samples.
It finds {weak[0]} weak drifts. In the median stream it takes {tables.delay(weak[2])} samples.
In {samples:,} independent sound samples it gives {_alarms(alarms)}.
{_best_peer(results)}

![Median delay of four detectors for each weak and strong drift](drift.png)
"""


def _best_peer(results: Sequence[Result]) -> str:
    """How the others do at the monitor's budget."""
    said = []
    for name in BESIDE[1:]:
        weak, strong = tables.found(results, name, "weak"), tables.found(results, name, "strong")
        if strong[1]:
            said.append(
                f"- {name}: finds {strong[0]} of {strong[1]} strong drifts and {weak[0]} of {weak[1]} weak ones, in "
                f"{tables.delay(strong[2])} and {tables.delay(weak[2])} samples. False alarms in 100,000 samples whose "
                f"neighbours are alike: {_alike(results, name)}."
            )
    if not said:
        return ""
    mine = f"Where neighbours are alike, the monitor gives {_alike(results, OURS)} false alarms in 100,000 samples."
    return "\n".join([mine, "\nThe others, with about the same budget for independent samples:\n", *said])


def _alike(results: Sequence[Result], name: str) -> str:
    """False alarms in 100,000 samples, of all orders but the independent one."""
    counts = [tables.rate(results, name, order) for order in ORDERS if order != "independent"]
    return tables.per(sum(alarms for alarms, _ in counts), sum(samples for _, samples in counts))


def _alarms(count: int) -> str:
    return {0: "no false alarm", 1: "one false alarm"}.get(count, f"{count} false alarms")


def _drifts(results: Sequence[Result]) -> str:
    parts = [
        "## Every drift\n\n"
        "The column *found* says in how many streams, *after* the median of samples from the drift's begin on.\n"
        "In *accuracy* is what the drift changes, in percentage points. In *wrong* are wrong answers that it caused\n"
        "until the alarm, or until the end where there was none; the median again. In *by* is the statistic that was\n"
        "most often the first to alarm. An unknown class costs accuracy by definition.",
    ]
    for result in results:
        parts.append(f"### {result.subject['name']}\n\n{tables.drifts(result)}")
    for strength in ("strong", "weak"):
        lines = [f"- {line}" for line in tables.missed(results, strength)]
        said = "\n".join(lines) if lines else "None."
        parts.append(f"### {strength.capitalize()} drifts that most streams do not show\n\n{said}")
    return "\n\n".join(parts)


def _side(results: Sequence[Result], plan: Plan) -> str:
    return f"""
## Beside others

Each detector sees the same streams and knows the same validation samples.
The peers get the monitor's own statistics, so that only the detectors differ.
The column *found* counts drifts that most streams show. In *after* is the median over all streams of all drifts.
In *false* are false alarms in 100,000 sound samples, in four orders of them.

{tables.summary(results)}

Where there are fewer drifts in *found*, the detector was not run on every subject.
A detector that often alarms by chance also finds much by chance.
With one false alarm in 1,000 samples it would find everything within {plan.after:,}.
So the lines with *budget* are those to compare: they have the budget of the monitor.
The settings of river are then the most sensitive of a ladder without a false alarm in
{plan.independent * plan.line:,} other sound samples. That choice was made for each subject, in the peers' favour.
{_settings(results)}
"""


def _settings(results: Sequence[Result]) -> str:
    said = []
    for name in dict.fromkeys(each for r in results for each in r.settings):
        values = sorted({r.settings[name] for r in results})
        said.append(f"- {name}: {' to '.join(f'{value:.3g}' for value in (values[0], values[-1])[: len(values)])}.")
    return "\n" + "\n".join(said) if said else ""


def _false(results: Sequence[Result]) -> str:
    lines = "\n".join(f"- *{name}*: {what}." for name, (what, _) in ORDERS.items())
    return f"""
## False alarms of the monitor

Every sample comes as often as in validation, so each alarm is false. Behind an alarm a new monitor begins.

{lines}

{tables.sound(results)}

The samples of *one long stream* are independent too, but have one reference.
There the chance of the validation samples would show.
{_worst(results)}
"""


def _worst(results: Sequence[Result]) -> str:
    counts = {order: tables.rate(results, OURS, order) for order in ORDERS}
    over = [order for order, (alarms, samples) in counts.items() if samples and alarms * 100_000 > samples]
    if not over:
        return "The promise of one in 100,000 is kept in every order."
    return f"The promise of one in 100,000 is not kept for {' and '.join(over)}."


def _all(results: Sequence[Result]) -> str:
    return f"""
## Every drift beside others

The median of samples until the alarm, each detector within the budget. A dash: most streams did not show it.

{tables.beside(results, [each for each in BESIDE if any(each in r.outcomes for r in results)])}
"""


def _how(results: Sequence[Result], plan: Plan) -> str:
    missing = "\n".join(f"- {each}" for each in dict.fromkeys(each for r in results for each in r.missing))
    return f"""
## How the peers are run

- river's ADWIN and Page-Hinkley know no reference. So they are first shown the reference's samples.
  On *all statistics* there is one detector for each, which gets ranks in the reference, 0 to 1.
  On *confidence* there is one, which gets the confidence itself. KSWIN has its last 100 of them, which it keeps.
- *K-S windows* is alibi-detect's KSDrift on {WINDOW} samples, with Bonferroni's correction over the statistics.
  Its default p-value is 0.05; within the budget it is {WINDOW / 100_000:.5f}.
- *MMD windows* is alibi-detect's MMDDrift on {WINDOW} samples, p-value 0.05, with 50 permutations.
  With so few permutations it cannot keep the budget, and more would take too long.
- *evidently* is its preset for data drift on {LARGE:,} samples: an alarm where half of the columns drift.
- KSWIN, MMD and evidently are slow. They are run on CIFAR-10 alone, with one stream a drift.
- An offline test sees windows that follow one another. Its alarm comes at the end of a window.
  With a drift, the first window is the one in which the drift begins.
- A slow drift grows over {RAMP:,} samples. Its delay counts from the first of them.
{f"{chr(10)}Not run:{chr(10)}{chr(10)}{missing}" if missing else ""}
"""
