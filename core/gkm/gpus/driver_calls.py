"""Asking a driver about one thing, call by call, so that one bad answer costs one field. Vendor-neutral."""

from collections.abc import Callable, Collection
from typing import TypeVar

from gkm.gpus.values import FATAL_CODES, MAX_FAULTS, Fault, printable

_T = TypeVar("_T")
DescribeError = Callable[[Exception], tuple[str, str] | None]
"""Names the code and the words of a vendor's own error; None of any other."""

MAX_MESSAGE = 160
"""A call's name before it still fits what one error may have."""
UNREADABLE = "UNREADABLE"
"""The code of an answer that the binding itself could not make sense of: a garbled name, a missing key."""


class DriverCalls:
    """Makes calls about one thing and keeps what failed. `absent` are codes that say: this one has no such thing."""

    def __init__(self, describe_error: DescribeError, absent: Collection[str] = ()) -> None:
        self._describe_error = describe_error
        self._absent = absent
        self._faults: dict[tuple[str, str], Fault] = {}

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Return each fault once, the fatal ones first: there is room for a few dozen."""
        return tuple(sorted(self._faults.values(), key=lambda fault: fault.code not in FATAL_CODES))[:MAX_FAULTS]

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the faults as sentences."""
        return tuple(f"{fault.call}: {fault.message}" for fault in self.faults)

    def query(self, call: str, function: Callable[[], _T], default: _T, *, optional: bool = False) -> _T:
        """Return the answer, or `otherwise`; `optional` means that absence is no fault.

        Bindings raise more than their own errors (text that is not UTF-8, a number that is none, a function that an
        older library lacks), and whatever they raise must cost this field and not the GPU.
        """
        try:
            return function()
        except Exception as error:  # noqa: BLE001 -- see above
            code, message = self._describe_error(error) or (UNREADABLE, f"{type(error).__name__}: {error}")
        if not (optional and code in self._absent):
            self._faults[call, code] = Fault(call, printable(code, 64), printable(message, MAX_MESSAGE))
        return default
