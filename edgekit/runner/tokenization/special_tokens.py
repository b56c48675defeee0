"""The tokens that stand before and behind every text, such as [CLS] and [SEP]: the `post_processor` of a file."""

from __future__ import annotations

from typing import Any

from edgekit.runner.errors import InputError
from edgekit.runner.tokenization.parts import flat, is_id, kind_of, refuse_unless

KNOWN = "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, or none"
Ends = tuple[tuple[int, ...], tuple[int, ...]]


def read(section: Any, ids: dict[str, int]) -> Ends:
    """Ids before and behind; `ids` are those of all tokens. InputError for a post-processor that is not known."""
    found: list[Ends] = []
    for part in flat(section, "processors"):
        kind = kind_of(part)
        refuse_unless(kind in _READERS, "post_processor", kind or part, KNOWN)
        ends = _READERS[str(kind)](part)
        found += [ends] if any(ends) else []
    refuse_unless(len(found) < 2, "post_processor", "several that add tokens", "one that does")
    before, behind = found[0] if found else ((), ())
    unknown = [each for each in (*before, *behind) if each not in set(ids.values())]
    if unknown:
        raise InputError(f"post_processor: adds id {unknown[0]}, which no token has")
    return before, behind


def _pair(part: Any) -> Ends:
    """BERT's and RoBERTa's: [name, id] of the one before and of the one behind."""
    ends = [part.get("cls"), part.get("sep")]
    refuse_unless(
        all(isinstance(end, list) and len(end) == 2 and is_id(end[1]) for end in ends),
        "post_processor",
        ends,
        "cls and sep as [token, id]",
    )
    return (ends[0][1],), (ends[1][1],)


def _template(part: Any) -> Ends:
    items, known = part.get("single"), part.get("special_tokens")
    refuse_unless(
        isinstance(items, list) and isinstance(known, dict), "post_processor", part, "a template for one text"
    )
    texts = [place for place, item in enumerate(items) if _name(item, "Sequence") == "A"]
    refuse_unless(len(texts) == 1, "post_processor.single", items, "one text, $A, among special tokens")
    place = texts[0]
    return _ids(items[:place], known), _ids(items[place + 1 :], known)


def _ids(items: list[Any], known: dict[str, Any]) -> tuple[int, ...]:
    found: list[int] = []
    for item in items:
        ids = (known.get(_name(item, "SpecialToken") or "") or {}).get("ids")
        refuse_unless(isinstance(ids, list) and all(map(is_id, ids)), "post_processor.single", item, "special tokens")
        found += list(ids or ())
    return tuple(found)


def _name(item: Any, kind: str) -> str | None:
    inner = item.get(kind) if isinstance(item, dict) else None
    name = inner.get("id") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


_READERS = {
    "TemplateProcessing": _template,
    "BertProcessing": _pair,
    "RobertaProcessing": _pair,
    "ByteLevel": lambda part: ((), ()),  # it moves offsets, which nobody here asks for
}
