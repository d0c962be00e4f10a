"""What was ordered, beside what is there: ORDER.toml and a cable plan, compared with an inventory."""

from hpcadmin.order._compare import compare
from hpcadmin.order._file import load
from hpcadmin.order._records import (
    Cable,
    Comparison,
    CpuOrder,
    Difference,
    DiskOrder,
    GpuOrder,
    GroupOrder,
    MemoryOrder,
    NicOrder,
    NotCompared,
    Order,
)
from hpcadmin.order._text import NOT_COMPARED, text

__all__ = [
    "NOT_COMPARED", "Cable", "Comparison", "CpuOrder", "Difference", "DiskOrder", "GpuOrder", "GroupOrder",
    "MemoryOrder", "NicOrder", "NotCompared", "Order", "compare", "load", "text",
]
