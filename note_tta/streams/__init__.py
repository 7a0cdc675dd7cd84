"""Orders of a stream over one domain, and over several domains.

An order over one domain is a LongTensor of indices. An order over several domains is a `DomainOrder`, which holds the
domain of each sample and the position where each domain begins.
"""

from .orders import chronological, dirichlet, iid, label_shift, mean_run_length, slotted, sorted, thinned
from .protocols import (
    PROTOCOLS,
    Batches,
    Begin,
    DomainOrder,
    class_sorted,
    continual,
    imbalanced,
    in_turn,
    mixed,
    pooled,
    practical,
    recurring,
    shifted,
)

__all__ = [
    "PROTOCOLS",
    "Batches",
    "Begin",
    "DomainOrder",
    "chronological",
    "class_sorted",
    "continual",
    "dirichlet",
    "iid",
    "imbalanced",
    "in_turn",
    "label_shift",
    "mean_run_length",
    "mixed",
    "pooled",
    "practical",
    "recurring",
    "shifted",
    "slotted",
    "sorted",
    "thinned",
]
