"""What result.json says of a run's parts: its artifacts, its bundles, and what the result was made from."""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field

from edgekit.core.config import Strict

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Stage(Strict):
    """The sealed artifact of one stage."""

    digest: Sha256 = Field(description="of its content")
    key: Sha256 = Field(description="of everything that its content depends on")
    finished: AwareDatetime = Field(description="when it was sealed, UTC")
    seconds: float = Field(ge=0, description="wall time of its work")
    cpu_seconds: float | None = Field(
        None, ge=0, description="processor time of its work, of all threads and child processes; absent: not recorded"
    )


class Bundle(Strict):
    """One file to copy to a device."""

    file: str = Field(pattern=r"\.edge\.zip$", description="its name, in the folder bundles/")
    sha256: Sha256 = Field(description="of the file")
    bytes: int = Field(gt=0, description="size of the file")
    variant: str = Field(description="name of the variant inside")
    commands: list[str] = Field(description="what to type on the device")


class Sources(Strict):
    """What a result was made from."""

    digest: Sha256 = Field(description="of all else in this result, and of the records of the artifacts")
    code: Sha256 = Field(description="of the code of edgekit that made it")
