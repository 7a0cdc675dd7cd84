"""Reports from results: tables beside the paper's, figures, and one HTML page."""

from . import _needs as _needs
