"""Reports from results: tables next to the paper's, figures, and one HTML page."""

from . import _needs as _needs
