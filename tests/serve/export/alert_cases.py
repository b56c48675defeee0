"""What each alert must make of series that a server or a device may give: it fires, or stays silent.

The objective is that of `OBJECTIVE`: 1 % of the answers may be slow, 0.1 % of the requests may be refused.
"""

from __future__ import annotations

from tests.serve.export.promtool import UP, Case, counter, gauge

OBJECTIVE = ("--slo-p99", "50ms", "--availability", "99.9")
BOUND = "0.0410238"
"""The nearest bucket to 50 ms."""
WHO = 'job="edgekit", instance="one", model="bell", version="1.0.0"'
LATENCY, AVAILABILITY = "EdgekitLatencyBudgetBurn", "EdgekitAvailabilityBudgetBurn"
HOUR, DAY = 60, 1440
LAST = ""
"""Evaluated at the end alone."""
TENTH = "10m"
"""Every ten minutes, for histories of hours."""
Parts = tuple[tuple[int, float], ...]


def minutes(parts: Parts) -> int:
    return sum(length for length, _ in parts)


def answers(slow: Parts, a_minute: float = 100.0) -> dict[str, str]:
    """Answers, of which in each part a share is slow."""
    good = tuple((length, a_minute * (1 - share)) for length, share in slow)
    return {
        f"edgekit_request_duration_seconds_count{{{WHO}}}": counter((minutes(slow), a_minute)),
        f'edgekit_request_duration_seconds_bucket{{{WHO}, le="{BOUND}"}}': counter(*good),
    }


def refusals(refused: Parts, reason: str = "busy", a_minute: float = 100.0) -> dict[str, str]:
    """Requests, of which in each part a share is refused."""
    good = tuple((length, a_minute * (1 - share)) for length, share in refused)
    bad = tuple((length, a_minute * share) for length, share in refused)
    return {
        f"edgekit_request_duration_seconds_count{{{WHO}}}": counter(*good),
        f'edgekit_request_duration_seconds_bucket{{{WHO}, le="{BOUND}"}}': counter(*good),
        refused_as(reason): counter(*bad),
    }


def refused_as(reason: str) -> str:
    return f'edgekit_refused_total{{{WHO}, reason="{reason}"}}'


BURNS: dict[str, tuple[Parts, tuple[str, ...]]] = {
    # (minutes, share of the budget's multiple), and the long windows whose alert fires
    "all is well": (((HOUR, 0.5),), ()),
    "twice the budget for hours": (((7 * HOUR, 2),), ("3d",)),
    "four times the budget for hours": (((7 * HOUR, 4),), ("1d", "3d")),
    "eight times the budget for hours": (((7 * HOUR, 8),), ("6h", "1d", "3d")),
    "twenty times the budget for hours": (((7 * HOUR, 20),), ("1h", "6h", "1d", "3d")),
    "five minutes of fifty times": (((3 * DAY, 0.1), (5, 50)), ()),
    "half an hour of fifty times": (((3 * DAY, 0.1), (30, 50)), ("1h",)),
    "half an hour of fifty times that ended a quarter of an hour ago": (((3 * DAY, 0.1), (30, 50), (15, 0)), ()),
    "an hour of fifty times": (((3 * DAY, 0.1), (HOUR, 50)), ("1h", "6h")),
    "two hours of fifty times that ended ten minutes ago": (
        ((3 * DAY, 0.1), (2 * HOUR, 50), (10, 0)),
        ("6h", "1d", "3d"),
    ),
    "two hours of fifty times that ended an hour ago": (((3 * DAY, 0.1), (2 * HOUR, 50), (HOUR, 0)), ("1d", "3d")),
    "five hours of eight times": (((3 * DAY, 0.1), (5 * HOUR, 8)), ("6h",)),
    "ten hours of twelve times": (((3 * DAY, 0.1), (10 * HOUR, 12)), ("6h", "1d", "3d")),
    "ten hours of twelve times that ended 200 minutes ago": (((3 * DAY, 0.1), (10 * HOUR, 12), (200, 0)), ("3d",)),
    "ten hours of twelve times that ended seven hours ago": (((3 * DAY, 0.1), (10 * HOUR, 12), (420, 0)), ()),
    "two days of two times that ended twelve hours before": (((2 * DAY, 2), (DAY // 2, 0.1)), ()),
}


def burn_cases() -> list[Case]:
    """Latency and availability, each with the same history in multiples of its own budget."""
    found = []
    for name, (history, windows) in BURNS.items():
        end = minutes(history)
        slow = tuple((length, 0.01 * times) for length, times in history)
        refused = tuple((length, 0.001 * times) for length, times in history)
        fires = tuple(f"{LATENCY} {window}" for window in windows)
        found.append(Case(f"latency: {name}", fires, end, answers(slow), LAST))
        fires = tuple(f"{AVAILABILITY} {window}" for window in windows)
        found.append(Case(f"availability: {name}", fires, end, refusals(refused, a_minute=1000.0), LAST))
    return found


def budget_cases() -> list[Case]:
    """What counts, and what does not."""
    every = tuple(f"{AVAILABILITY} {window}" for window in ("1h", "6h", "1d", "3d"))
    slow = tuple(f"{LATENCY} {window}" for window in ("1h", "6h", "1d", "3d"))
    found = [
        Case(f"refused as {reason}", every, HOUR, refusals(((HOUR, 0.05),), reason), LAST)
        for reason in ("busy", "late", "failed")
    ]
    found += [
        Case(f"refused as {reason}, which is the client's", (), HOUR, refusals(((HOUR, 0.05),), reason), LAST)
        for reason in ("cancelled", "invalid", "too_large", "unsupported")
    ]
    found += [
        Case("all is refused", every, HOUR, refusals(((HOUR, 1.0),)), LAST),
        Case("four slow answers of a quiet hour", (), HOUR, answers(((HOUR, 0.5),), 0.13), LAST),
        Case("ten slow answers of a quiet hour", slow, HOUR, answers(((HOUR, 0.5),), 0.34), LAST),
        Case("a refusal of a quiet hour", (), HOUR, refusals(((HOUR, 0.1),), a_minute=0.2), LAST),
    ]
    nobody = refused_as("WHY").replace('"bell"', '""').replace('"1.0.0"', '""')
    found += [
        Case(f"refused as {reason} before the model was known", (), HOUR,
             {nobody.replace("WHY", reason): counter((HOUR, 5)), **answers(((HOUR, 0.0),))}, LAST)
        for reason in ("busy", "invalid")
    ]  # fmt: skip
    two = {name.replace("1.0.0", "2.0.0"): values for name, values in answers(((HOUR, 0.2),)).items()}
    found.append(Case("one version of two is slow", slow, HOUR, {**answers(((HOUR, 0.0),)), **two}, LAST))
    return found


def right_cases() -> list[Case]:
    """The watch over the model, and its canary."""
    health, drift = f"edgekit_health{{{WHO}}}", f'edgekit_drift_alarm{{{WHO}, statistic="brightness"}}'
    failures = f"edgekit_canary_failures_total{{{WHO}}}"
    success = f"edgekit_canary_last_success_timestamp_seconds{{{WHO}}}"
    return [
        Case("healthy", (), HOUR, {health: gauge((HOUR, 0)), drift: gauge((HOUR, 0))}),
        Case("too early to say", (), HOUR, {health: gauge((HOUR, -1))}),
        Case("wrong", ("EdgekitModelWrong",), HOUR, {health: gauge((50, 0), (10, 2))}),
        Case("wrong for a minute", (), HOUR, {health: gauge((59, 0), (1, 2))}),
        Case("warning", ("EdgekitModelWarning",), HOUR, {health: gauge((20, 0), (40, 1))}),
        Case("warning for a quarter of an hour", (), HOUR, {health: gauge((45, 0), (15, 1))}),
        Case("drifted", ("EdgekitDrift",), HOUR, {drift: gauge((40, 0), (20, 1))}),
        Case("drifted for five minutes", (), HOUR, {drift: gauge((55, 0), (5, 1))}),
        Case("the canary failed once", ("EdgekitCanaryFailed",), HOUR, {failures: gauge((50, 0), (10, 1))}),
        Case("the canary failed long ago", (), HOUR, {failures: gauge((20, 0), (40, 1))}),
        Case("the canary never failed", (), HOUR, {failures: gauge((HOUR, 0))}),
        Case("the canary succeeds each minute", (), HOUR, {success: f"0+60x{HOUR}"}),
        Case("the canary came last half an hour ago", ("EdgekitCanaryStale",), HOUR, {success: f"1800x{HOUR}"}),
        Case("the canary came last ten minutes ago", (), HOUR, {success: f"3000x{HOUR}"}),
        Case("the canary has been late for a moment", (), HOUR, {success: gauge((HOUR, 3600 - 920))}),
    ]


def request_cases() -> list[Case]:
    """Silence, rejected inputs, streams that are too fast."""
    count = f"edgekit_request_duration_seconds_count{{{WHO}}}"
    other = count.replace("1.0.0", "2.0.0")
    quiet = counter((4 * HOUR, 10), (40, 0))
    dropped = f"edgekit_dropped_total{{{WHO}}}"
    return [
        Case("no request any more", ("EdgekitNoTraffic",), 280, {count: quiet}, LAST),
        Case("no request for a quarter of an hour", (), 255, {count: counter((240, 10), (15, 0))}, LAST),
        Case("never any request", (), 280, {count: counter((280, 0))}, LAST),
        Case("no request since two days", (), 3000, {count: counter((60, 10), (2940, 0))}, LAST),
        Case("another version is asked now", (), 280, {count: quiet, other: counter((240, 0), (40, 10))}, LAST),
        Case(
            "all that comes is refused", tuple(f"{AVAILABILITY} {window}" for window in ("1h", "6h", "1d", "3d")), 280,
            {count: quiet, refused_as("busy"): counter((240, 0), (40, 10))}, LAST,
        ),
        *(
            Case(f"half of it is {reason}", ("EdgekitInputsRejected",), HOUR,
                 {count: counter((HOUR, 10)), refused_as(reason): counter((HOUR, 10))}, LAST)
            for reason in ("invalid", "too_large", "unsupported")
        ),
        Case("a twentieth is invalid", (), HOUR,
             {count: counter((HOUR, 95)), refused_as("invalid"): counter((HOUR, 5))}, LAST),
        Case("a quarter is invalid", ("EdgekitInputsRejected",), HOUR,
             {count: counter((HOUR, 30)), refused_as("invalid"): counter((HOUR, 10))}, LAST),
        Case("a few are invalid, of a few", (), HOUR,
             {count: counter((HOUR, 0.3)), refused_as("invalid"): counter((HOUR, 0.5))}, LAST),
        Case("a third is cancelled", (), HOUR,
             {count: counter((HOUR, 20)), refused_as("cancelled"): counter((HOUR, 10))}, LAST),
        Case("a stream drops a third", ("EdgekitStreamTooSlow",), HOUR,
             {count: counter((HOUR, 20)), dropped: counter((30, 0), (30, 10))}),
        Case("a stream dropped a third for some minutes", (), HOUR,
             {count: counter((HOUR, 20)), dropped: counter((53, 0), (7, 10))}),
        Case("a stream drops a twentieth", (), HOUR, {count: counter((HOUR, 95)), dropped: counter((HOUR, 5))}),
    ]  # fmt: skip


def machine_cases() -> list[Case]:
    """Heat, clock, voltage, memory, and a machine that is gone."""
    here = 'job="edgekit", instance="one"'
    heat, memory = (
        f"edgekit_temperature_celsius{{{here}}}",
        f'edgekit_process_resident_bytes{{{here}, process="worker0"}}',
    )
    found = []
    for metric, alert in (("throttled", "EdgekitThrottled"), ("under_voltage", "EdgekitUnderVoltage")):
        name = f"edgekit_{metric}{{{here}}}"
        found += [
            Case(f"{metric} now and then", (alert,), HOUR, {name: " ".join(["1 0 0 0"] * 15) + " 0"}),
            Case(f"{metric} a while ago", (), HOUR, {name: gauge((30, 1), (30, 0))}),
            Case(f"{metric} never", (), HOUR, {name: gauge((HOUR, 0))}),
            Case(f"{metric} since two minutes", (), HOUR, {name: gauge((58, 0), (2, 1))}),
        ]
    leak = f"100000000+100000x{7 * HOUR}"
    return [
        *found,
        Case("80 °C", ("EdgekitTooHot",), HOUR, {heat: gauge((HOUR, 80))}),
        Case("79 °C", (), HOUR, {heat: gauge((HOUR, 79))}),
        Case("90 °C for two minutes", (), HOUR, {heat: gauge((58, 60), (2, 90))}),
        Case("memory grows and grows", ("EdgekitMemoryGrowing",), 7 * HOUR, {memory: leak}, TENTH),
        Case("memory stays", (), 7 * HOUR, {memory: gauge((7 * HOUR, 1e8))}, TENTH),
        Case("a model was loaded", (), 7 * HOUR, {memory: gauge((5 * HOUR, 1e8), (2 * HOUR, 2e8))}, TENTH),
        Case("a model was loaded, before", (), 7 * HOUR, {memory: gauge((2 * HOUR, 1e8), (5 * HOUR, 2e8))}, TENTH),
        Case("memory goes up and down", (), 7 * HOUR,
             {memory: gauge(*[(20, 1e8 * (1 + step % 2)) for step in range(21)])}, TENTH),
        Case("memory grew, and grows no more", (), 9 * HOUR,
             {memory: f"100000000+200000x{4 * HOUR} " + gauge((5 * HOUR, 1.5e8))}, TENTH),
        Case("memory has grown for long enough since ten minutes", (), 370,
             {memory: "100000000x119 100000000+1000000x250"}, TENTH),
        Case("down", ("EdgekitTargetDown",), HOUR, {UP: gauge((55, 1), (5, 0))}),
        Case("down for a minute", (), HOUR, {UP: gauge((59, 1), (1, 0))}),
        Case("gone from the config", ("EdgekitNoTarget",), HOUR, {UP: "1x30 _x30"}),
        Case("gone for three minutes", (), HOUR, {UP: "1x52 _x8"}),
        Case("a target of somebody else is down", (), HOUR, {'up{job="mail", instance="two"}': gauge((HOUR, 0))}),
        Case("a device is down", ("EdgekitTargetDown",), HOUR,
             {'up{job="edgekit-devices", instance="two"}': gauge((HOUR, 0))}),
    ]  # fmt: skip


def every_case() -> list[Case]:
    return [*burn_cases(), *budget_cases(), *right_cases(), *request_cases(), *machine_cases()]
