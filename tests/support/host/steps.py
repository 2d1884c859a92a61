"""Counts what Python does, for statements about costs that no other load of the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(action: Callable[[], object]) -> int:
    """Return the number of bytecode instructions of a call, in this thread."""
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 -- what settrace wants
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
