"""Measures decoders: their names are the arguments. A line of JSON for each hostile text, on standard output.

Each text is decoded in a child of its own, so that no memory that another gave back hides what it takes.
"""

import json
import os
import sys

from support.host.memory import memory_of, reset_peak
from support.hostile.decoders import DECODERS, Decoder
from support.hostile.json_texts import Text, texts

SIZES = (128 << 10, 1 << 20)


def main() -> None:
    for name in sys.argv[1:] or DECODERS:
        decoder = DECODERS[name]
        # Of YAML the number of values is limited, and reading it is slow.
        sizes = SIZES if decoder.factor else SIZES[:1]
        for size in sorted({min(size, decoder.limit) for size in sizes}):
            for text in texts(decoder.kind, size - 64):
                pid = os.fork()
                if not pid:
                    _measure(decoder, text)
                status = os.waitpid(pid, 0)[1]
                if status:
                    _print(decoder, text, -1, f"ended with {status}")


def _measure(decoder: Decoder, text: Text) -> None:
    before = reset_peak()
    outcome = "decoded"
    try:
        value = decoder.call(text.text)
        del value
    except Exception as error:  # noqa: BLE001 -- the test judges which it may be
        outcome = f"{type(error).__name__}: {error}"[:200]
    _print(decoder, text, memory_of("self", "VmHWM") - before, outcome)
    os._exit(0)


def _print(decoder: Decoder, text: Text, growth: int, outcome: str) -> None:
    line = {"decoder": decoder.name, "where": text.where, "size": len(text.text), "growth": growth, "outcome": outcome}
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    main()
