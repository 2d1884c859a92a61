"""Parse Kubernetes quantities, which are not negative here; a number of GPUs is whole and at most MAX_GPUS."""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

MAX_GPUS = 1024
"""The largest number for one node or one pod. Machines have up to 16; with time slicing, each counts several times."""

_QUANTITY = re.compile(
    r"\+?(?P<number>\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?P<suffix>[a-zA-Z]?i?|[eE][+-]?\d{1,2})", re.ASCII
)
# k8s.io/apimachinery, pkg/api/resource: suffixes. Large suffixes may give a few GPUs: 0.000001M is one.
# Fractions are exact: a Decimal of 28 digits would round 36 digits to a whole number.
_FACTORS = {suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)}
_FACTORS |= {suffix: Fraction(1000**power) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))}
_FACTORS |= {f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)}

Quantity = str | int | float


@lru_cache(maxsize=1 << 10)  # nearly always one of a few
def gpu_count(quantity: Quantity) -> int:
    """Return the number of GPUs of a quantity; `8`, `"8"`, `"8000m"` and `"8e0"` are all eight.

    Raises:
        ValueError: the text is no quantity, or not whole, or negative, or more than MAX_GPUS.
    """
    text = str(quantity)
    number = _number(text, "GPUs")
    if number > MAX_GPUS:
        raise ValueError(f"{text[:32]!a} GPUs are more than the maximum of {MAX_GPUS}")
    if number.denominator != 1:
        raise ValueError(f"{text[:32]!a} is no whole number of GPUs")
    return int(number)


@lru_cache(maxsize=1 << 12)
def thousandths(quantity: Quantity, of: str) -> int:
    """Return a quantity of CPUs or memory in thousandths, rounded up as Kubernetes does; `of` is what an error names.

    Raises:
        ValueError: the text is no quantity, or negative.
    """
    return ceil(1000 * _number(str(quantity), of))


def _number(text: str, of: str) -> Fraction:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:32]!a} is no number of {of}")
    number, suffix = Fraction(found["number"]), found["suffix"]
    if suffix in _FACTORS:
        return number * _FACTORS[suffix]
    if not suffix[-1:].isdigit():  # a final digit belongs to an exponent
        raise ValueError(f"{text[:32]!a} is no number of {of}")
    return number * Fraction(f"1{suffix}")
