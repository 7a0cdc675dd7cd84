"""Test-time adaptation: keep a trained classifier accurate while its input drifts, on streams correlated in time.

Public names are imported on first use, so that the command line starts before torch is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .names import MODULES, homes

__version__ = "0.2.0"

__all__ = sorted([*homes(), *MODULES, "__version__"])

if TYPE_CHECKING:  # for editors and type checkers, to which a name of `homes()` that is not here is `Any`
    from . import data as data
    from . import methods as methods
    from . import models as models
    from . import nn as nn
    from . import streams as streams
    from .checkpoint import load_state as load_state
    from .checkpoint import load_weights as load_weights
    from .checkpoint import save_state as save_state
    from .checks import check_method as check_method
    from .evaluation import Result as Result
    from .evaluation import evaluate as evaluate
    from .filter import TemporalFilter as TemporalFilter
    from .fleet import Fleet as Fleet
    from .memory import CSTU as CSTU
    from .memory import FIFO as FIFO
    from .memory import HUS as HUS
    from .memory import PBRS as PBRS
    from .memory import Memory as Memory
    from .memory import Reservoir as Reservoir
    from .methods import METHODS as METHODS
    from .methods import Method as Method
    from .methods.bn_stats import BNStats as BNStats
    from .methods.cotta import CoTTA as CoTTA
    from .methods.eata import EATA as EATA
    from .methods.eta import ETA as ETA
    from .methods.lame import LAME as LAME
    from .methods.note import NOTE as NOTE
    from .methods.note_iid import NOTEIID as NOTEIID
    from .methods.onda import ONDA as ONDA
    from .methods.petta import PeTTA as PeTTA
    from .methods.pl import PL as PL
    from .methods.rdumb import RDumb as RDumb
    from .methods.roid import ROID as ROID
    from .methods.rotta import RoTTA as RoTTA
    from .methods.sar import SAR as SAR
    from .methods.sotta import SoTTA as SoTTA
    from .methods.source import Source as Source
    from .methods.tent import TENT as TENT
    from .methods.unmix_tns import UnMixTNS as UnMixTNS
    from .nn.iabn import IABN1d as IABN1d
    from .nn.iabn import IABN2d as IABN2d
    from .nn.iabn import IABN3d as IABN3d
    from .nn.iabn import convert_bn as convert_bn
    from .nn.iabn import convert_iabn as convert_iabn
    from .nn.prepacked import prepack_convolutions as prepack_convolutions
    from .nn.unmix import UnMixTNS2d as UnMixTNS2d
    from .nn.unmix import convert_unmix_tns as convert_unmix_tns
    from .recommended import adapt as adapt
    from .watch import Watch as Watch


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f".{name}", __name__)
    home = homes().get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
