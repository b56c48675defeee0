"""Faults in the runner and in what bundles prove themselves with."""

from __future__ import annotations

from tests.mutants.seeds.seed import Seed

DEVICE = (
    Seed(
        "zero-point-added",
        "runner/backends/_tflite.py",
        "real -= zero_point",
        "real += zero_point",
        "int8 scores are off by twice the zero point",
        ("tests/runner/test_backends.py",),
    ),
    Seed(
        "scale-of-the-input-inverted",
        "runner/backends/_tflite.py",
        "np.divide(x, scale, real)",
        "np.multiply(x, scale, real)",
        "int8 models see almost nothing of their input",
        ("tests/runner/test_backends.py",),
    ),
    Seed(
        "int8-inputs-cut-off-not-rounded",
        "runner/backends/_tflite.py",
        "np.rint(real, real)",
        "np.trunc(real, real)",
        "int8 inputs are off by up to a whole step",
        ("tests/runner/test_backends.py",),
    ),
    Seed(
        "selftest-takes-either",
        "runner/model.py",
        "ok = delta <= atol and (agreement == 1.0 or not top1)",
        "ok = delta <= atol or (agreement == 1.0 or not top1)",
        "a bundle proves itself with scores far from the recorded ones",
        ("tests/runner/test_model.py",),
    ),
    Seed(
        "member-digest-not-compared",
        "runner/bundle.py",
        'if _sha256(data) != facts["sha256"]:',
        'if len(data) != facts["bytes"]:',
        "a changed model runs as if it were the one that was packed",
        ("tests/runner/test_bundle.py",),
    ),
    Seed(
        "unlisted-member-accepted",
        "runner/bundle.py",
        "for name in sorted(found - listed):",
        "for name in sorted(set()):",
        "what the manifest does not list is not told",
        ("tests/runner/test_bundle.py",),
    ),
    Seed(
        "microseconds-called-milliseconds",
        "runner/bench.py",
        "nanoseconds.ravel() / 1e6",
        "nanoseconds.ravel() / 1e3",
        "every latency is a thousand times too high",
        ("tests/runner/test_bench.py",),
    ),
)

BUNDLING = (
    Seed(
        "golden-tolerances-exchanged",
        "stages/bundle/pack.py",
        'if variant.precision == "int8" else config.golden_tolerance_float',
        'if variant.precision != "int8" else config.golden_tolerance_float',
        "float bundles pass their selftest although they are far off, int8 ones fail on another processor",
        ("tests/stages/bundle/test_pack.py",),
    ),
    Seed(
        "golden-vectors-of-another-variant",
        "stages/bundle/pack.py",
        "raw, scores = _golden(convert, variant, data",
        "raw, scores = _golden(convert, read(convert)[0], data",
        "a bundle's golden scores are another model's",
        ("tests/stages/bundle/test_pack.py",),
    ),
    Seed(
        "near-ties-as-golden-vectors",
        "stages/bundle/pack.py",
        "np.argsort(top[:, -2] - top[:, -1], kind",
        "np.argsort(top[:, -1] - top[:, -2], kind",
        "the selftest hangs on the rounding of the device's interpreter",
        ("tests/stages/bundle/test_pack.py",),
    ),
)
