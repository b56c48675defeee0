"""Faults in what measures, foretells and explains, and in what compares numbers with numbers."""

from __future__ import annotations

from tests.mutants.seeds.seed import Seed

MEASURING = (
    Seed(
        "warm-up-counted-into-every-operator",
        "targets/openvino/profile.py",
        "all_ms * (WARM_UP + calls) - cold_ms * WARM_UP)",
        "all_ms * (WARM_UP + calls) - cold_ms * 0)",
        "the cold first calls are in the time of every operator",
        ("tests/targets/test_profile.py",),
    ),
    Seed(
        "stolen-time-not-told",
        "device/measure/conditions.py",
        "seen.steal_share, MAX_STEAL_SHARE",
        "seen.steal_share, 1.0",
        "times taken while the hypervisor held the cores back are compared",
        ("tests/device/measure/test_conditions.py",),
    ),
    Seed(
        "a-disturbed-result-is-compared",
        "device/measure/conditions.py",
        '        elif each["disturbed"]:\n            reasons.append(',
        '        elif each["disturbed"] is None:\n            reasons.append(',
        "latencies of two results are set side by side although one was disturbed",
        ("tests/device/measure/test_conditions.py",),
    ),
    Seed(
        "what-is-fixed-is-saved-too",
        "measure/forecast.py",
        "return before / (compute_ms + memory_ms + self.fixed_ms)",
        "return before / (compute_ms + memory_ms)",
        "a step is predicted to save what a call costs besides",
        ("tests/measure/test_forecast.py",),
    ),
    Seed(
        "stop-by-the-middle-of-an-interval",
        "measure/forecast.py",
        'row["high_ms"] > latency_p50_ms',
        'row["p50_ms"] > latency_p50_ms',
        "a user is told to stop where the budget is not surely met",
        ("tests/measure/test_forecast.py",),
    ),
    Seed(
        "a-rate-is-held-once",
        "measure/load/rate_search.py",
        'if all(meets(low, "confirm") for _ in range(confirmations)):',
        'if any(meets(low, "confirm") for _ in range(confirmations)):',
        "the highest rate is one that was met by luck",
        ("tests/measure/load/test_rate.py",),
    ),
    Seed(
        "a-short-rate-is-not-marked",
        "measure/load/rate_search.py",
        "return any(trial.short for trial in self._rests_on)",
        "return all(trial.short for trial in self.trials[:0])",
        "a rate that rests on seconds reads as MLPerf's",
        ("tests/measure/load/test_rate.py", "tests/measure/load/test_command.py"),
    ),
    Seed(
        "latency-from-the-actual-start",
        "measure/load/loadgen_run.py",
        "latencies_ms = loadgen_logs.read_latencies_ms(folder)",
        "latencies_ms = service_ms",
        "the wait of a query that stood in the queue is forgotten",
        ("tests/measure/load/test_loadgen_run.py",),
    ),
)

EXPLAINING = (
    Seed(
        "first-loss-in-place-of-the-steepest",
        "targets/locate/bisect.py",
        "enough_db = max(STEEP * max(losses_db), min_loss_db)",
        "enough_db = 0.0",
        "the first layer is blamed for whatever goes wrong",
        ("tests/targets/test_bisect.py",),
    ),
    Seed(
        "a-margin-hides-the-cause",
        "stages/convert/boundary_checks.py",
        "        return float(not one.any() and not other.any())",
        "        return 0.0",
        "a wrong scale is called another resize where a channel is constant",
        ("tests/stages/convert/test_ends.py",),
    ),
    Seed(
        "a-foreign-function-is-not-asked-for",
        "core/cache_key.py",
        'FUNCTION_KEYS = ("builder", "function", "reference_preprocess")',
        'FUNCTION_KEYS = ("builder", "function")',
        "a bundle's record makes any function be called",
        ("tests/core/test_cache_key.py",),
    ),
    Seed(
        "sound-tensors-by-size-alone",
        "targets/tensors.py",
        "by_shape.setdefault(row.shape, [])",
        "by_shape.setdefault((len(operators[0].values), row.shape[1]), [])",
        "a tensor that does not begin with the samples ends a sound conversion",
        ("tests/targets/test_bisect.py",),
    ),
    Seed(
        "an-alarm-without-end-counts-once",
        "core/stream_events.py",
        "alarms += int((-(-(lasts - firsts) // repeat)).sum())",
        "alarms += len(firsts)",
        "a model that never falls silent has one false alarm",
        ("tests/core/test_stream_events.py",),
    ),
    Seed(
        "smoothing-may-lose-every-event",
        "stages/bundle/streams.py",
        "if each.detected >= min_detected - 1e-9",
        "if each.detected >= 0",
        "quiet is bought with events that nobody detects",
        ("tests/stages/bundle/test_smoothing.py",),
    ),
    Seed(
        "windows-of-a-stream-out-of-order",
        "stages/bundle/streams.py",
        'indices = np.argsort(split.starts, kind="stable")',
        "indices = np.arange(len(split.y))",
        "smoothing is chosen on windows that never followed one another",
        ("tests/stages/bundle/test_streams.py",),
    ),
)
