"""What happens to pictures: light, lens, sensor, compression, and where the camera looks. uint8 (n, h, w, channels)."""

from __future__ import annotations

import io

import numpy as np

from benchmarks.drift.drifts import Drift, as_type

Generator = np.random.Generator


def brightness(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """All values times 1 + `by`."""
    return as_type(raws.astype(np.float32) * (1 + by), raws)


def fog(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """Values move towards a light grey of 200, by a share: a dirty or misted lens."""
    return as_type(raws * np.float32(1 - by) + np.float32(200 * by), raws)


def contrast(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """Distances from each picture's mean times 1 + `by`."""
    mean = raws.mean(axis=(1, 2, 3), keepdims=True, dtype=np.float32)
    return as_type(mean + (raws - mean) * np.float32(1 + by), raws)


def gamma(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """Values to the power of 1 + `by`, which a driver's new tone curve does."""
    table = as_type(255 * (np.arange(256) / 255) ** (1 + by), raws)
    return table[raws]


def blur(raws: np.ndarray, sigma: float, rng: Generator) -> np.ndarray:
    """A Gaussian of `sigma` pixels: out of focus."""
    from scipy.ndimage import gaussian_filter

    return as_type(gaussian_filter(raws.astype(np.float32), (0, sigma, sigma, 0), mode="nearest"), raws)


def noise(raws: np.ndarray, sigma: float, rng: Generator) -> np.ndarray:
    """Normal noise of `sigma` grey levels at each pixel: a hot sensor."""
    return as_type(raws + rng.normal(0, sigma, raws.shape).astype(np.float32), raws)


def salt_and_pepper(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """A share of the pixels is black or white, others in each picture."""
    chance = rng.random(raws.shape[:3], dtype=np.float32)[..., None]
    return np.where(chance < share / 2, np.uint8(0), np.where(chance < share, np.uint8(255), raws))


def dead_pixels(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """A share of the sensor's pixels is black, the same ones in each picture."""
    order = rng.random(raws.shape[1:3])
    return np.where((order < share)[None, ..., None], np.uint8(0), raws)


def colour_cast(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """Red times 1 + `by`, blue times 1 − `by`: another white balance."""
    return as_type(raws * np.float32([1 + by, 1, 1 - by]), raws)


def channels_swapped(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """Red and blue change places in a share of the pictures: BGR for RGB."""
    chosen = rng.random(len(raws)) < share
    return np.where(chosen[:, None, None, None], raws[..., ::-1], raws)


def jpeg(raws: np.ndarray, lost: float, rng: Generator) -> np.ndarray:
    """JPEG of quality 100 − `lost`: a link with less room."""
    from PIL import Image

    def again(picture: np.ndarray) -> np.ndarray:
        squeezed = io.BytesIO()
        Image.fromarray(picture.squeeze()).save(squeezed, "JPEG", quality=max(1, round(100 - lost)))
        return np.asarray(Image.open(squeezed)).reshape(picture.shape)

    return np.stack([again(picture) for picture in raws])


def occlusion(raws: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """A grey square over a share of the picture's area, in the same place of each: dirt on the lens."""
    height, width = raws.shape[1:3]
    side = max(1, round((share * height * width) ** 0.5))
    top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
    covered = raws.copy()
    covered[:, top : top + side, left : left + side] = 90
    return covered


def turned(raws: np.ndarray, degrees: float, rng: Generator) -> np.ndarray:
    """The camera is turned, the same for each picture."""
    from scipy.ndimage import rotate

    given = raws.astype(np.float32)
    return as_type(rotate(given, degrees, axes=(1, 2), reshape=False, order=1, mode="nearest"), raws)


def moved(raws: np.ndarray, pixels: float, rng: Generator) -> np.ndarray:
    """The camera points elsewhere: all pictures are moved to the side, edges are repeated."""
    from scipy.ndimage import shift

    return as_type(shift(raws.astype(np.float32), (0, 0, pixels, 0), order=1, mode="nearest"), raws)


def flicker(raws: np.ndarray, by: float, rng: Generator) -> np.ndarray:
    """Brightness times 1 ± up to `by`, another for each picture: the mean stays, the spread grows."""
    factors = 1 + by * rng.uniform(-1, 1, len(raws)).astype(np.float32)
    return as_type(raws * factors[:, None, None, None], raws)


COLOUR = (
    Drift("darker", "brightness −25 %, −60 %", brightness, -0.25, -0.6),
    Drift("brighter", "brightness +25 %, +80 %", brightness, 0.25, 0.8),
    Drift("gamma", "exponent 1.3, 2.2", gamma, 0.3, 1.2),
    Drift("less contrast", "contrast −25 %, −60 %", contrast, -0.25, -0.6),
    Drift("fog", "15 %, 50 % grey", fog, 0.15, 0.5),
    Drift("flicker", "brightness ±30 %, ±80 %", flicker, 0.3, 0.8),
    Drift("blur", "sigma 0.6, 1.5 pixels", blur, 0.6, 1.5),
    Drift("sensor noise", "sigma 4, 20 grey levels", noise, 4.0, 20.0),
    Drift("salt and pepper", "0.3 %, 5 % of the pixels", salt_and_pepper, 0.003, 0.05),
    Drift("dead pixels", "0.3 %, 5 % of the sensor", dead_pixels, 0.003, 0.05),
    Drift("colour cast", "red and blue ±12 %, ±40 %", colour_cast, 0.12, 0.4),
    Drift("red and blue swapped", "30 %, all of the pictures", channels_swapped, 0.3, 1.0),
    Drift("JPEG blocks", "quality 85, 20", jpeg, 15.0, 80.0),
    Drift("occlusion", "4 %, 25 % of the area", occlusion, 0.04, 0.25),
    Drift("camera turned", "10, 45 degrees", turned, 10.0, 45.0),
)
"""For pictures of three colours and some detail."""
GREY = (
    Drift("darker", "brightness −25 %, −60 %", brightness, -0.25, -0.6),
    Drift("sensor noise", "sigma 15, 50 grey levels", noise, 15.0, 50.0),
    Drift("blur", "sigma 0.35, 0.8 pixels", blur, 0.35, 0.8),
    Drift("dead pixels", "2 %, 10 % of the sensor", dead_pixels, 0.02, 0.1),
    Drift("camera moved", "0.5, 1.5 pixels", moved, 0.5, 1.5),
    Drift("camera turned", "10, 45 degrees", turned, 10.0, 45.0),
)
"""For the digits, 8×8 pixels of one colour."""
