"""A small bitmap font: the printable letters of ASCII, 5 pixels wide and 7 high."""

from __future__ import annotations

import unicodedata

import numpy as np

WIDTH, HEIGHT = 5, 7
STEP = WIDTH + 1
"""From one letter to the next."""
FIRST, LAST = " ", "~"
COLUMNS = bytes.fromhex(
    "000000000000005f00000007000700147f147f14242a7f2a12231308646236495620500005030000001c2241000041221c00"
    "2a1c7f1c2a08083e080800503000000808080808006060000020100804023e5149453e00427f400042615149462141454b31"
    "1814127f1027454545393c4a49493001710905033649494936064949291e0036360000005636000008142241001414141414"
    "00412214080201510906324979413e7e1111117e7f494949363e414141227f4141221c7f494949417f090909013e4149497a"
    "7f0808087f00417f41002040413f017f081422417f404040407f020c027f7f0408107f3e4141413e7f090909063e4151215e"
    "7f09192946464949493101017f01013f4040403f1f2040201f3f4038403f631408146307087008076151494543007f414100"
    "02040810200041417f0004020102044040404040000102040020545454787f484444383844444420384444487f3854545418"
    "087e0901020c5252523e7f0804047800447d40002040443d007f1028440000417f40007c041804787c080404783844444438"
    "7c14141408081414187c7c080404084854545420043f4440203c4040207c1c2040201c3c4030403c44281028440c5050503c"
    "4464544c44000836410000007f000000413608001008081008"
)
"""Five bytes a letter, a column each; the lowest bit is the top row."""


def plain(text: str, instead: str) -> str:
    """The text in letters that the font has, accents left out; `instead` where another alphabet is needed."""
    found = unicodedata.normalize("NFKD", text)
    found = "".join(letter for letter in found if not unicodedata.combining(letter))
    return found if found and all(FIRST <= letter <= LAST for letter in found) else instead


def caption(name: str, share: float, letters: int) -> str:
    """A name in this font and a share in so many letters; of a name that is too long, its beginning, or nothing."""
    said = f" {share:.0%}"
    room = letters - len(said)
    if room <= 2:
        return said.strip() if len(said.strip()) <= letters else ""
    return f"{name if len(name) <= room else f'{name[: room - 2]}..'}{said}"


def mask(text: str, scale: int) -> np.ndarray:
    """Where ink is, bool (7 · scale, 6 · scale · letters), of a text that `plain` gave."""
    columns = np.frombuffer(COLUMNS, np.uint8).reshape(-1, WIDTH)
    letters = columns[[ord(letter) - ord(FIRST) for letter in text]]
    spaced = np.pad(letters, ((0, 0), (0, STEP - WIDTH))).reshape(-1)
    ink = spaced[None, :] >> np.arange(HEIGHT, dtype=np.uint8)[:, None] & 1
    large: np.ndarray = ink.astype(bool).repeat(scale, axis=0).repeat(scale, axis=1)
    return large
