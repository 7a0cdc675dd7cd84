"""The methods, each in its own file. `METHODS` maps their names to their classes."""

from .method import Method
from .bn_stats import BNStats
from .cotta import CoTTA
from .lame import LAME
from .note import NOTE
from .note_iid import NOTEIID
from .onda import ONDA
from .pl import PL
from .source import Source
from .tent import TENT

METHODS: dict[str, type[Method]] = {
    "source": Source,
    "bn_stats": BNStats,
    "onda": ONDA,
    "pl": PL,
    "tent": TENT,
    "lame": LAME,
    "cotta": CoTTA,
    "note": NOTE,
    "note_iid": NOTEIID,
}
"""Every method by the name that the command line and result files use."""

__all__ = [
    "METHODS",
    "BNStats",
    "CoTTA",
    "LAME",
    "Method",
    "NOTE",
    "NOTEIID",
    "ONDA",
    "PL",
    "Source",
    "TENT",
]
