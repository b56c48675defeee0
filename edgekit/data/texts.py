"""Create pools of token ids from texts, for the sources `text_folder` and `text_table`.

The vocabulary is the user's own file, or it is built only from the texts that the network is trained on. Which texts
these are is known only after the samples have been divided. To divide them, one must know which samples are equal, and
that depends on their ids and therefore on the vocabulary. So both steps are repeated until they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from edgekit.core.cache_key import library_versions
from edgekit.core.errors import DataError
from edgekit.core.paths import PathText, existing_path, file_stamp
from edgekit.data.types import Pools, SourceConfig
from edgekit.runner import input_path
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.data.types import Data, Split
    from edgekit.runner.tokenization import Tokenizer

MEMBER = "tokenizer.json"
MAX_VOCABULARY_ROUNDS = 5
"""Largest number of times that the vocabulary is built. Two are usually enough."""


class TextSourceConfig(SourceConfig):
    """Options that the sources of texts share."""

    tokens: int = Field(
        64, ge=4, le=4096, description="token ids in a sample, including the special tokens before and after the text"
    )
    too_long: Literal["cut", "refuse"] = Field("cut", description="text of more tokens: cut its end off, or refuse it")
    tokenizer: PathText | None = Field(
        None,
        description="path of a tokenizer.json, WordPiece or byte-level BPE; none: it is built from the train split",
    )
    vocabulary: int = Field(
        2000,
        ge=100,
        le=100_000,
        description="largest number of tokens in a vocabulary that is built from the train split",
    )
    lowercase: bool = Field(
        True, description="whether a vocabulary that is built has only lower-case letters without accents"
    )

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Number of token ids in a sample."""
        return (self.tokens,)

    @property
    def table(self) -> dict[str, Any] | None:
        """The step that reads a table of texts, if the source has one."""
        return None


@dataclass(frozen=True, eq=False)
class SplitTexts:
    """Texts of a split, each with a name for messages, and their labels (n,)."""

    texts: Sequence[str]
    names: Sequence[str]
    labels: np.ndarray


def vocabulary_identity(config: TextSourceConfig) -> list[object]:
    """Return the facts that determine the ids: the library's version and the stamp of a vocabulary file, if given."""
    file = file_stamp(existing_path(config.tokenizer, "data.tokenizer")) if config.tokenizer else []
    return [library_versions(("tokenizers",)), *file]


def text_pools(
    texts_by_split: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig, notes: Sequence[str]
) -> Pools:
    """Return pools of (n, tokens) int32 and the vocabulary that they were made with."""
    content, vocabulary_notes = (
        _read_vocabulary(config) if config.tokenizer else _make_vocabulary(texts_by_split, classes, config)
    )
    pools = _pools(content, texts_by_split, classes, config)
    return pools.with_splits(pools.splits(), *notes, *vocabulary_notes, *_cut(texts_by_split, config, content))


def _read_vocabulary(config: TextSourceConfig) -> tuple[bytes, list[str]]:
    path = existing_path(str(config.tokenizer), "data.tokenizer")
    try:
        return path.read_bytes(), []
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); name a tokenizer.json") from None


def _make_vocabulary(
    texts_by_split: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig
) -> tuple[bytes, list[str]]:
    """Build a vocabulary from the texts that the network is trained on. Return it with notes."""
    from edgekit.data import vocabulary

    texts = texts_by_split["train"].texts
    training_indices: list[int] = list(range(len(texts)))
    for _ in range(MAX_VOCABULARY_ROUNDS):
        content = vocabulary.train_vocabulary(
            (texts[index] for index in training_indices), config.vocabulary, lowercase=config.lowercase
        )
        previous, training_indices = training_indices, _trained_on(content, texts_by_split, classes, config)
        if training_indices == previous:
            return content, [
                f"vocabulary: {_read(content).size:,} tokens, built from the {len(training_indices):,} texts of train"
            ]
    untrained = len(set(previous) - set(training_indices))
    note = f"vocabulary: {_read(content).size:,} tokens; {untrained} of its {len(previous):,} texts are not in train"
    return content, [note]


def _trained_on(
    content: bytes, texts_by_split: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig
) -> list[int]:
    """Return the indices of the pool's texts that end up in train or calibration.

    They are found by their token ids, because all copies of a sample are in the same split.
    """
    from edgekit.data import checks, splits

    pools = _pools(content, texts_by_split, classes, config)
    limited = splits.limit_pools(
        checks.normalize_pools(pools, config.task), config.limit, config.split_seed, config.task
    )
    data = splits.divide(limited, config)
    training_rows = {row.tobytes() for split in (data.train, data.calibration) for row in split.x}
    return [index for index, row in enumerate(pools.train.x) if row.tobytes() in training_rows]


def _pools(
    content: bytes, texts_by_split: Mapping[str, SplitTexts], classes: tuple[str, ...], config: TextSourceConfig
) -> Pools:
    tokenizer = _read(content)
    if config.tokens <= tokenizer.special_tokens:
        raise DataError(
            f"data.tokens: got {config.tokens}, but every text needs {tokenizer.special_tokens} special tokens"
        )
    steps = input_path.text_steps(MEMBER, config.tokens, tokenizer.pad_id, config.too_long, config.table)
    by_split = {name: _ids(texts, tokenizer, steps[-1], config) for name, texts in texts_by_split.items()}
    three_splits = (by_split["train"], by_split.get("validation"), by_split.get("test"))
    return Pools(*three_splits, classes, "text", input_path=tuple(steps), members={MEMBER: content})


def _ids(texts: SplitTexts, tokenizer: Tokenizer, step: dict[str, Any], config: TextSourceConfig) -> Split:
    import numpy as np

    from edgekit.data.types import Split
    from edgekit.runner.inputs import text

    x = np.empty((len(texts.texts), config.tokens), np.int32)
    for row, (name, content) in enumerate(zip(texts.names, texts.texts, strict=True)):
        try:
            result = text.token_ids(name, content, tokenizer, step)
        except InputError as error:
            raise DataError(f"{error}, or set data.too_long: cut, or raise data.tokens") from None
        if result.tokens == tokenizer.special_tokens:
            raise DataError(f"{name}: {text.EMPTY}; fill it, or leave it out")
        x[row] = result.raw
    return Split(x, texts.labels)


def _cut(texts_by_split: Mapping[str, SplitTexts], config: TextSourceConfig, content: bytes) -> list[str]:
    """Return a note on the number of texts that are cut, or nothing if none is."""
    tokenizer = _read(content)
    all_texts = [one for texts in texts_by_split.values() for one in texts.texts]
    long_count = sum(len(tokenizer.encode(one)) > config.tokens for one in all_texts)
    return [f"of {len(all_texts):,} texts {long_count:,} are longer than data.tokens and are cut"] if long_count else []


def _read(content: bytes) -> Tokenizer:
    from edgekit.runner import tokenization

    try:
        return tokenization.read_tokenizer(content, "data.tokenizer")
    except InputError as error:
        raise DataError(str(error)) from None


def decode_text(name: str, content: bytes) -> str:
    """Return the text of a file, as the device reads it. Raises DataError if it is not text."""
    from edgekit.runner.inputs import text

    try:
        return text.decode(name, content)
    except InputError as error:
        raise DataError(str(error)) from None


def text_of_sample(data: Data, sample: np.ndarray) -> str:
    """Return the text of a sample's token ids without padding. Unknown words are `[UNK]`."""
    step = input_path.find_step(data.input_path or (), "tokenize")
    if step is None:
        return ""
    from edgekit.runner import tokenization

    tokenizer = tokenization.read_tokenizer(data.members[step["vocabulary"]])
    return tokenizer.readable([number for number in sample.tolist() if number != step["pad_id"]])
