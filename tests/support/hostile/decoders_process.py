"""Measures decoders: their names are the arguments. A line of JSON for each hostile text, on standard output.

A child decodes one text after another, because forking this process costs more than most decoders. Every peak is
compared with what the child held before its first text, so memory that a text gave back counts against the next one
and hides nothing. A text that seems to take too much is measured again, as the first one of a fresh child.
"""

import gc
import json
import os
import sys
from collections.abc import Sequence
from itertools import islice

from support.host.memory import memory_of, reset_peak
from support.hostile.decoder import Decoder
from support.hostile.decoders import DECODERS
from support.hostile.json_texts import Text, texts

SIZES = (128 << 10, 1 << 20)
TEXTS_EACH = 16
"""Texts that one child decodes at most. They are in memory at the same time, within the limit of this process."""


def main() -> None:
    # Garbage of the imports, and a collection that visits their objects, would count against some text of a child.
    gc.collect()
    gc.freeze()
    for name in sys.argv[1:] or DECODERS:
        decoder = DECODERS[name]
        # Of YAML the number of values is limited, and reading it is slow.
        sizes = SIZES if decoder.factor else SIZES[:1]
        for size in sorted({min(size, decoder.limit) for size in sizes}):
            hostile = texts(decoder.kind, size - 64)
            while pending := list(islice(hostile, TEXTS_EACH)):
                while pending:
                    del pending[: _measure_in_a_child(decoder, pending)]


def _measure_in_a_child(decoder: Decoder, pending: Sequence[Text]) -> int:
    """Print a line for each of the first texts, one at least, and return how many they are."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _measure(decoder, pending, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.readlines()
    status = os.waitpid(pid, 0)[1]
    if not lines:
        lines = [_line(decoder, pending[0], -1, f"ended with {status}")]
    os.write(1, b"".join(lines))
    return len(lines)


def _measure(decoder: Decoder, pending: Sequence[Text], writing: int) -> None:
    """Write a line for each text, up to one that must be measured in a fresh child."""
    before = reset_peak()
    for number, text in enumerate(pending):
        reset_peak()
        outcome = "decoded"
        try:
            value = decoder.call(text.text)
            del value
        except Exception as error:  # noqa: BLE001 -- the test judges which it may be
            outcome = f"{type(error).__name__}: {error}"[:200]
        growth = max(0, memory_of("self", "VmHWM") - before)
        if number and growth > decoder.allowed(len(text.text)):
            return
        os.write(writing, _line(decoder, text, growth, outcome))


def _line(decoder: Decoder, text: Text, growth: int, outcome: str) -> bytes:
    line = {"decoder": decoder.name, "where": text.where, "size": len(text.text), "growth": growth, "outcome": outcome}
    return json.dumps(line).encode() + b"\n"


if __name__ == "__main__":
    main()
