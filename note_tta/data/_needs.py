"""Imported first: says what is missing before anything fails to import it."""

from ..extras import require

require("note_tta.data", "experiments", "scipy", "sklearn", "PIL")
