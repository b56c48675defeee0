"""Branches → merged: what the stages that train made of a network with branches (`edgekit.models.reparameterize`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.models import store
from edgekit.stages.convert.plan import Network

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact

TRAINED_BY = {"baseline": "profile", "student": "distill", "pruned": "distill", "sparse": "distill"}
KEY = "reparameterized"


def rows(source: Artifact, networks: Sequence[Network]) -> Iterator[dict[str, Any]]:
    """A row for each network that was merged: how far its outputs moved then, and its parameters before and after."""
    for network in networks:
        if store.read_spec(network.folder).reparameterized:
            found = source.ancestor(TRAINED_BY[network.name]).metrics[KEY]
            yield {"model": network.name, "from": "branches", "to": "merged", **found}
