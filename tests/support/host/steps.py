"""Counts what Python does, for statements about costs that no other load of the machine changes."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(action: Callable[[], object]) -> int:
    """Return the number of bytecode instructions of a call, in this thread.

    Without a garbage collection, which may run the finalizers of objects that other tests left.
    """
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 -- what settrace wants
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    collects = gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count
