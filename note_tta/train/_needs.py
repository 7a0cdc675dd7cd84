"""Imported first: says what is missing before anything fails to import it."""

from ..extras import require

require("note_tta.train", "experiments", "rich")
