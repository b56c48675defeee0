"""Token ids of a text, by a vocabulary that travels in the bundle: BERT's WordPiece and GPT-2's byte-level BPE.

It reads the `tokenizer.json` of the library `tokenizers`, as far as these two kinds go, and gives that library's ids.
Whatever else stands in such a file is refused, never guessed. Training runs this same code. Its tables of characters
are its own (`unicode_tables.py`): a newer Python knows more characters, and must not give other ids.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.runner import bounded_json
from edgekit.runner.errors import InputError
from edgekit.runner.tokenization import added_tokens, byte_bpe, special_tokens, wordpiece
from edgekit.runner.tokenization.parts import is_id

if TYPE_CHECKING:
    from typing import Protocol

    class Model(Protocol):
        """A vocabulary of one kind, opened."""

        vocabulary: dict[str, int]

        def normalize(self, text: str) -> str: ...

        def encode(self, normalized: str) -> list[int]: ...

        def joined(self, tokens: list[str]) -> str: ...


KINDS: dict[str, Callable[..., Model]] = {"WordPiece": wordpiece.read, "BPE": byte_bpe.read}
"""By the `type` of `model` in the file, what reads it."""
LARGEST_BYTES = 64 << 20
PADDING = ("[PAD]", "<pad>")
"""What the token that fills up is called, where the file has no `padding`."""


class Tokenizer(NamedTuple):
    """An opened `tokenizer.json`. `size` is one more than the highest id; `pad_id` fills a sample up."""

    model: Model
    added: added_tokens.AddedTokens
    before: tuple[int, ...]
    behind: tuple[int, ...]
    size: int
    pad_id: int

    @property
    def least(self) -> int:
        """Tokens of an empty text: those that stand before and behind every one."""
        return len(self.before) + len(self.behind)

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """The ids, with those that stand before and behind; of more than `most`, the text's last ones are cut."""
        ids: list[int] = []
        for part, known in self.added.split(text):
            ids += [known] if known is not None else self.model.encode(part)
        if most is not None:
            ids = ids[: max(0, most - self.least)]
        return [*self.before, *ids, *self.behind]


@functools.lru_cache(maxsize=4)  # a folder of texts has one vocabulary, and reading it takes longer than using it
def read(content: bytes, name: str = "tokenizer.json") -> Tokenizer:
    """Open the bytes of a `tokenizer.json`; InputError says what in it this reader does not know."""
    try:
        return _read(_parsed(content))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _parsed(content: bytes) -> dict[str, Any]:
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{len(content):,} bytes, at most {LARGEST_BYTES:,} are read")
    try:
        values = bounded_json.loads(content)
    except ValueError as error:
        raise InputError(f"no JSON in UTF-8 ({error}); save it with Tokenizer.save of the library tokenizers") from None
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise InputError("not a tokenizer.json of the library tokenizers: it has no object 'model'")
    return values


def _read(values: dict[str, Any]) -> Tokenizer:
    section = values["model"]
    kind = section.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"model.type: got {str(kind)[:40]!r}; this reader knows {' and '.join(KINDS)}")
    model = KINDS[kind](section, values.get("normalizer"), values.get("pre_tokenizer"))
    added = added_tokens.read(values.get("added_tokens"), model.normalize)
    ids = {**model.vocabulary, **added.ids}
    before, behind = special_tokens.read(values.get("post_processor"), ids)
    return Tokenizer(model, added, before, behind, 1 + max(ids.values()), _padding(values.get("padding"), ids))


def _padding(section: Any, ids: dict[str, int]) -> int:
    """The id that fills a sample up: of the file's own section, or of the token that is called so; else 0."""
    if isinstance(section, dict) and is_id(section.get("pad_id")):
        return int(section["pad_id"])
    return next((ids[name] for name in PADDING if name in ids), 0)
