"""Seeded streams: independent samples, neighbours that are alike, and a drift that comes suddenly or slowly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.drift.pools import Pool, Stream

BEFORE = (150, 650)
"""Samples before a drift: a number between these, another for each seed, so that no window begins with the drift."""
RAMP = 1024
"""Samples over which a slow drift grows to its full strength."""


def independent(pool: Pool, samples: int, seed: int) -> Stream:
    """Each sample is drawn by itself."""
    rng = np.random.default_rng((seed, 1))
    return _of(pool, rng.integers(0, len(pool.raws), samples))


def neighbours(pool: Pool, samples: int, seed: int, memory: float = 0.99) -> Stream:
    """Samples sorted by their first statistic, visited by a walk AR(1): in the long run each as often as any other."""
    from scipy.signal import lfilter
    from scipy.stats import norm

    rng = np.random.default_rng((seed, 2))
    order = np.argsort(pool.table[:, 0], kind="stable")
    start = rng.normal()
    steps = rng.normal(0, np.sqrt(1 - memory**2), samples)
    walk = lfilter([1.0], [1.0, -memory], steps) + start * memory ** np.arange(1, samples + 1)
    return _of(pool, order[(norm.cdf(walk) * len(order)).astype(int).clip(0, len(order) - 1)])


def video(pool: Pool, samples: int, seed: int, repeats: int = 25) -> Stream:
    """Each sample comes 25 times, as a scene that stays for a second."""
    rng = np.random.default_rng((seed, 3))
    return _of(pool, np.repeat(rng.integers(0, len(pool.raws), -(-samples // repeats)), repeats)[:samples])


def runs(pool: Pool, samples: int, seed: int, mean: int = 50) -> Stream:
    """One class after another, each for 50 samples on average; the length of a stay is geometric."""
    rng = np.random.default_rng((seed, 4))
    places = rng.integers(0, len(pool.raws), samples)
    members = {each: np.flatnonzero(pool.classes == each) for each in np.unique(pool.classes)}
    change = rng.random(samples) < 1 / mean
    change[0] = True
    for start, end in zip(np.flatnonzero(change), [*np.flatnonzero(change)[1:], samples]):
        mine = members[pool.classes[places[start]]]
        places[start:end] = mine[rng.integers(0, len(mine), end - start)]
    return _of(pool, places)


ORDERS: dict[str, tuple[str, Callable[[Pool, int, int], Stream]]] = {
    "independent": ("each sample by itself", independent),
    "neighbours": ("sorted by the first statistic, a walk AR(1) of 0.99", neighbours),
    "video": ("each sample 25 times", video),
    "runs": ("one class after another, 50 samples each", runs),
}
"""Orders of sound samples; in each, every sample comes as often as any other."""


def sudden(sound: Pool, drifted: Pool, after: int, seed: int, weights: np.ndarray | None = None) -> Stream:
    """Sound samples, and from one sample to the next those of the other pool, drawn by its weights if it has any."""
    rng, before = _begin(seed)
    place = np.concatenate([rng.integers(0, len(sound.raws), before), rng.choice(len(drifted.raws), after, p=weights)])
    return Stream((sound, drifted), np.repeat([0, 1], [before, after]), place, before)


def slow(sound: Pool, levels: tuple[Pool, ...], after: int, seed: int) -> Stream:
    """The drift grows in equal levels for RAMP samples, and stays."""
    rng, before = _begin(seed)
    level = np.minimum(np.arange(after) * len(levels) // RAMP, len(levels) - 1)
    which = np.concatenate([np.zeros(before, int), 1 + level])
    sizes = np.array([len(each.raws) for each in (sound, *levels)])
    return Stream((sound, *levels), which, (rng.random(len(which)) * sizes[which]).astype(int), before)


def _begin(seed: int) -> tuple[np.random.Generator, int]:
    rng = np.random.default_rng((seed, 5))
    return rng, int(rng.integers(*BEFORE))


def _of(pool: Pool, places: np.ndarray) -> Stream:
    return Stream((pool,), np.zeros(len(places), int), places, len(places))
