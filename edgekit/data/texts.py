"""From texts to pools of token ids; shared by the sources `text_folder` and `text_table`.

The vocabulary is a file of the user's, or it is made of the texts that the network is trained on, and of no other.
Which these are is known once the samples are divided, and what is the same sample is known once there are ids. So both
are done in turn until they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.errors import DataError
from edgekit.data.paths import PathText, existing_path, file_stamp
from edgekit.data.types import Pools, SourceConfig
from edgekit.runner import input_path
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data.types import Data, Split
    from edgekit.runner.tokenization import Tokenizer

MEMBER = "tokenizer.json"
MAX_VOCABULARY_ROUNDS = 5
"""How often the vocabulary is made anew at most; two are usually enough."""


class TextSourceConfig(SourceConfig):
    """What the sources of texts have in common."""

    tokens: int = Field(64, ge=4, le=4096, description="token ids in a sample, those before and behind it included")
    too_long: Literal["cut", "refuse"] = Field("cut", description="text of more tokens: cut its end off, or refuse it")
    tokenizer: PathText | None = Field(
        None, description="path of a tokenizer.json, WordPiece or byte-level BPE; none: made of the train split"
    )
    vocabulary: int = Field(
        2000, ge=100, le=100_000, description="most tokens of a vocabulary that is made of the train split"
    )
    lowercase: bool = Field(True, description="whether a vocabulary that is made has small letters only, no accents")

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Token ids of one text."""
        return (self.tokens,)

    @property
    def table(self) -> dict[str, Any] | None:
        """The step that reads a table of texts, where the source has one."""
        return None


@dataclass(frozen=True, eq=False)
class SplitTexts:
    """Texts of a split, each with what messages call it, and the labels (n,)."""

    texts: Sequence[str]
    names: Sequence[str]
    labels: np.ndarray


def vocabulary_identity(config: TextSourceConfig) -> list[object]:
    """The library that makes the ids; of a file that holds the vocabulary, what the file system says of it."""
    file = file_stamp(existing_path(config.tokenizer, "data.tokenizer")) if config.tokenizer else []
    return [library_versions(("tokenizers",)), *file]


def text_pools(
    given: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig, notes: Sequence[str]
) -> Pools:
    """Pools of (n, tokens) int32 with the vocabulary that made them; `given` are the splits that the source has."""
    content, more = _given(config) if config.tokenizer else _made(given, classes, config)
    found = _pools(content, given, classes, config)
    return found.with_splits(found.splits(), *notes, *more, *_cut(given, config, content))


def _given(config: TextSourceConfig) -> tuple[bytes, list[str]]:
    path = existing_path(str(config.tokenizer), "data.tokenizer")
    try:
        return path.read_bytes(), []
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); name a tokenizer.json") from None


def _made(
    given: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig
) -> tuple[bytes, list[str]]:
    """A vocabulary of the texts that are trained on with it, and notes."""
    from edgekit.data import vocabulary

    texts = given["train"].texts
    chosen: list[int] = list(range(len(texts)))
    for _ in range(MAX_VOCABULARY_ROUNDS):
        content = vocabulary.train_vocabulary(
            (texts[place] for place in chosen), config.vocabulary, lowercase=config.lowercase
        )
        before, chosen = chosen, _trained_on(content, given, classes, config)
        if chosen == before:
            return content, [f"vocabulary: {_read(content).size:,} tokens, made of the {len(chosen):,} texts of train"]
    seen = len(set(before) - set(chosen))
    note = f"vocabulary: {_read(content).size:,} tokens; {seen} of its {len(before):,} texts are not in train"
    return content, [note]


def _trained_on(
    content: bytes, given: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig
) -> list[int]:
    """Places of the train pool's texts that end in train or calibration; all copies of a sample stay together."""
    from edgekit.data import checks, splits

    found = _pools(content, given, classes, config)
    limited = splits.limit_pools(
        checks.normalize_pools(found, config.task), config.limit, config.split_seed, config.task
    )
    data = splits.divide(limited, config)
    kept = {row.tobytes() for split in (data.train, data.calibration) for row in split.x}
    return [place for place, row in enumerate(found.train.x) if row.tobytes() in kept]


def _pools(
    content: bytes, given: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig
) -> Pools:
    tokenizer = _read(content)
    if config.tokens <= tokenizer.special_tokens:
        raise DataError(
            f"data.tokens: got {config.tokens}, and {tokenizer.special_tokens} stand around every text; raise it"
        )
    steps = input_path.text_steps(MEMBER, config.tokens, tokenizer.pad_id, config.too_long, config.table)
    made = {name: _ids(texts, tokenizer, steps[-1], config) for name, texts in given.items()}
    ends = (made["train"], made.get("validation"), made.get("test"))
    return Pools(*ends, classes, "text", input_path=tuple(steps), members={MEMBER: content})


def _ids(texts: SplitTexts, tokenizer: Tokenizer, step: dict[str, Any], config: TextSourceConfig) -> Split:
    import numpy as np

    from edgekit.data.types import Split
    from edgekit.runner.inputs import text

    x = np.empty((len(texts.texts), config.tokens), np.int32)
    for row, (name, one) in enumerate(zip(texts.names, texts.texts, strict=True)):
        try:
            found = text.token_ids(name, one, tokenizer, step)
        except InputError as error:
            raise DataError(f"{error}, or set data.too_long: cut, or raise data.tokens") from None
        if found.tokens == tokenizer.special_tokens:
            raise DataError(f"{name}: {text.EMPTY}; fill it, or leave it out")
        x[row] = found.raw
    return Split(x, texts.labels)


def _cut(given: Mapping[str, SplitTexts], config: TextSourceConfig, content: bytes) -> list[str]:
    """A note on how many texts lose their end."""
    tokenizer = _read(content)
    every = [one for texts in given.values() for one in texts.texts]
    long = sum(len(tokenizer.encode(one)) > config.tokens for one in every)
    return [f"of {len(every):,} texts {long:,} are longer than data.tokens and are cut"] if long else []


def _read(content: bytes) -> Tokenizer:
    from edgekit.runner import tokenization

    try:
        return tokenization.read_tokenizer(content, "data.tokenizer")
    except InputError as error:
        raise DataError(str(error)) from None


def decode_text(name: str, content: bytes) -> str:
    """The text of a file, as the device reads it; DataError where it is none."""
    from edgekit.runner.inputs import text

    try:
        return text.decode(name, content)
    except InputError as error:
        raise DataError(str(error)) from None


def text_of_sample(data: Data, sample: np.ndarray) -> str:
    """What the token ids of a sample say, without those that only fill up; unknown words are `[UNK]`."""
    step = input_path.find_step(data.input_path or (), "tokenize")
    if step is None:
        return ""
    from edgekit.runner import tokenization

    tokenizer = tokenization.read_tokenizer(data.members[step["vocabulary"]])
    return tokenizer.readable([number for number in sample.tolist() if number != step["pad_id"]])
