"""From results to what people look at: tables beside the paper's, figures, and one page."""

from . import _needs as _needs
