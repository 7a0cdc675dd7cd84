"""The manifest of a regenerated set: how it was made, and which parts are complete."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_text
from .base import BadData, MissingData
from .corruptions.engine import parameters
from .corruptions.names import SEVERITIES, Table

MANIFEST_NAME = "manifest.json"


@dataclass
class Manifest:
    """Facts about a regenerated set.

    `parameters` and `done` map a corruption and a severity (as text) to the parameters used and to the SHA-256 of the
    bytes of that block. A part that is not listed is not in the file, whatever the size of the file; one with other
    parameters than the current ones counts as missing.
    """

    dataset: str
    seed: int
    version: int  # of the corruption engine; other versions may make other bytes
    source: str  # fingerprint of the clean images
    textures: str = "procedural"  # the ice of `frost`, or "published" photographs
    parameters: dict[str, Any] = field(default_factory=dict)
    done: dict[str, dict[str, str]] = field(default_factory=dict)
    folder: Path = field(default=Path(), repr=False)
    table: Table = field(default="cifar", repr=False)

    @classmethod
    def read(cls, folder: Path, table: Table) -> Manifest:
        """Read the manifest of a regenerated folder, made with the parameters of this table."""
        path = folder / MANIFEST_NAME
        if not path.is_file():
            problem = "the manifest of this regenerated set is missing; delete the folder, prepare it again"
            raise BadData(path, problem)
        levels = {str(severity) for severity in SEVERITIES}
        try:
            manifest = cls(**json.loads(path.read_text(encoding="utf-8")), folder=folder, table=table)
            if not all(
                isinstance(listed, dict)
                and all(isinstance(part, dict) and part.keys() <= levels for part in listed.values())
                for listed in (manifest.done, manifest.parameters)
            ):
                raise ValueError("'done' and 'parameters' must map corruptions to severities")
        except (ValueError, TypeError, RecursionError) as error:
            problem = f"not a manifest ({error}); delete the folder and prepare it again"
            raise BadData(path, problem) from error
        return manifest

    def write(self) -> None:
        """Write the manifest atomically: a reader sees the old one or the new one."""
        content = asdict(self)
        del content["folder"], content["table"]
        write_text(self.folder / MANIFEST_NAME, json.dumps(content, indent=1, sort_keys=True) + "\n")

    @classmethod
    def open(cls, folder: Path, wanted: Manifest) -> Manifest:
        """The manifest of a set to continue, or `wanted` for a new one; a set made differently is refused."""
        wanted.folder = folder
        if not (folder / MANIFEST_NAME).exists():
            return wanted
        manifest = cls.read(folder, wanted.table)
        for name in ("dataset", "seed", "version", "source", "textures"):
            old, new = getattr(manifest, name), getattr(wanted, name)
            if old != new:
                made = f"{folder} was made with {name} {old!r}, not {new!r}"
                raise ValueError(f"{made}; delete that folder to make it again")
        return manifest

    def parts(self, corruption: str) -> dict[str, str]:
        """The completed parts of a corruption: severity (as text) -> what `done` says of it."""
        return {
            level: digest
            for level, digest in self.done.get(corruption, {}).items()
            if self.parameters.get(corruption, {}).get(level) == self.wanted(corruption, int(level))
        }

    def wanted(self, corruption: str, severity: int) -> list[float]:
        """The current parameters of a part of this set."""
        return list(parameters(corruption, severity, self.table))

    def has(self, corruption: str, severity: int) -> bool:
        """Whether this part was completed."""
        return str(severity) in self.parts(corruption)

    def require(self, corruption: str, severity: int, command: str) -> None:
        """Raise `MissingData` unless this part was completed."""
        if not self.has(corruption, severity):
            present = ", ".join(sorted(self.parts(corruption))) or "none"
            what = f"{corruption} at severity {severity} (regenerated severities present: {present})"
            raise MissingData(what, [self.folder], command)
