"""For the reference: aliases for the package's public names, which are resolved only when they are used."""

from __future__ import annotations

from typing import Any

import griffe

from note_tta.names import homes


class PublicNames(griffe.Extension):
    """Tells the reference where each public name lives."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add an alias for each public name of the package."""
        if pkg.path == "note_tta":
            for name, module in homes().items():
                pkg.set_member(name, griffe.Alias(name, f"note_tta.{module}.{name}"))
