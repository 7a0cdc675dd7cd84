"""For mkdocstrings: show the doctests under "Example:" as code, as it does those under "Examples:"."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_HEADING = re.compile(r"^( *)Example:$", re.MULTILINE)


class DoctestExamples(Extension):
    """Rename the section where a docstring is read."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Look at one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _HEADING.sub(r"\1Examples:", obj.docstring.value)
