"""Planning without the garbage collector: it looks through all objects of a process, and finds nothing here."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector away; it comes back as it was, also after an error.

    Of 25,000 nodes in memory one full collection takes 40 ms, more than most plans (bench/packing_times.py). Planning
    makes values and no cycles. Where two threads plan at once, the first that ends lets it come back: no harm.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
