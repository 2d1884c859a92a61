"""Call a driver for one GPU or system, so that a bad answer costs one field. Vendor-neutral."""

from collections.abc import Callable, Collection
from typing import TypeVar

from gkm.gpus.values import FATAL_CODES, MAX_FAULTS, Fault, printable

_T = TypeVar("_T")
DescribeError = Callable[[Exception], tuple[str, str] | None]
"""Returns the code and text of an error that the vendor's library raised; None for any other error."""

MAX_MESSAGE = 160
"""Limit of characters of an error text, so that it fits into a message together with the call's name."""
UNREADABLE = "UNREADABLE"
"""The code of an answer that the binding itself could not decode: a garbled name, a missing key."""


class DriverCalls:
    """Calls the driver about one GPU or system, and collects failures instead of raising them.

    `absent` are the error codes that mean that the GPU does not have the feature.
    """

    def __init__(self, describe_error: DescribeError, absent: Collection[str] = ()) -> None:
        self._describe_error = describe_error
        self._absent = absent
        self._faults: dict[tuple[str, str], Fault] = {}

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Return each failed driver call once, fatal ones first, at most MAX_FAULTS."""
        return tuple(sorted(self._faults.values(), key=lambda fault: fault.code not in FATAL_CODES))[:MAX_FAULTS]

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the failures of driver calls as texts."""
        return tuple(f"{fault.call}: {fault.message}" for fault in self.faults)

    def query(self, call: str, function: Callable[[], _T], default: _T, *, optional: bool = False) -> _T:
        """Call the driver and return the answer, or `default` after a failure.

        With `optional` a missing feature is no failure. Bindings raise other errors than their own (text that is not
        UTF-8, a value that is not a number, a function that an older library lacks); any of them must cost this field
        and not the GPU.
        """
        try:
            return function()
        except Exception as error:  # noqa: BLE001 -- see above
            code, message = self._describe_error(error) or (UNREADABLE, f"{type(error).__name__}: {error}")
        if not (optional and code in self._absent):
            self._faults[call, code] = Fault(call, printable(code, 64), printable(message, MAX_MESSAGE))
        return default
