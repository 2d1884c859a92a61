"""How many GPUs a Kubernetes quantity means: a whole number, never negative, and no more than a machine can have."""

import re
from decimal import Decimal
from functools import lru_cache

MAX_GPUS = 1024
"""Of one node, or asked for by one pod. The largest machines have 16; with time slicing each counts several times."""

_QUANTITY = re.compile(
    r"\+?(?P<number>\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?P<suffix>[a-zA-Z]?i?|[eE][+-]?\d{1,2})", re.ASCII
)
# k8s.io/apimachinery, pkg/api/resource: suffixes. Those that make more than MAX_GPUS of any number need no row.
_FACTORS = {"": Decimal(1), "m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9"), "k": Decimal(1000)}
_FACTORS["Ki"] = Decimal(1024)
_LARGER = frozenset({"M", "G", "T", "P", "E", "Mi", "Gi", "Ti", "Pi", "Ei"})

Quantity = str | int | float


@lru_cache(maxsize=1 << 10)  # nearly always one of a few
def gpus(quantity: Quantity) -> int:
    """Return a quantity as a number of GPUs; `8`, `"8"`, `"8000m"` and `"8e0"` are all eight.

    Raises:
        ValueError: it is no quantity, not whole, negative, or more than MAX_GPUS.
    """
    text = str(quantity)
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:32]!a} is no number of GPUs")
    number, suffix = Decimal(found["number"]), found["suffix"]
    if suffix in _LARGER:
        return _bounded(number * 1_000_000, text)
    if suffix not in _FACTORS and suffix[:1] not in ("e", "E"):
        raise ValueError(f"{text[:32]!a} is no number of GPUs")
    return _bounded(number * (_FACTORS[suffix] if suffix in _FACTORS else Decimal(f"1{suffix}")), text)


def _bounded(number: Decimal, text: str) -> int:
    if number > MAX_GPUS:
        raise ValueError(f"{text[:32]!a} GPUs are more than the {MAX_GPUS} that are believed")
    if number != number.to_integral_value():
        raise ValueError(f"{text[:32]!a} is no whole number of GPUs")
    return int(number)
