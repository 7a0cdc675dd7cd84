"""Imported first: it reports a missing extra before another import fails."""

from ..extras import require

require("note_tta.report", "experiments", "matplotlib", "jinja2")
