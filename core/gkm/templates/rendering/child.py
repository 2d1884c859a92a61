"""The program that renders: `python -I -m gkm.templates.rendering.child`. A socket is its input.

It limits itself before it reads the first request: no new file or socket (not one descriptor is free), no process, no
core dump, a fixed amount of memory, and CPU time for each request. The kernel enforces all of them, so expressions that
run in C and see no signal end as well. It ends at the end of its input, so it never outlives its parent for long.
"""

import gc
import json
import os
import signal
import sys
from typing import BinaryIO

from gkm.hoststate import process_limits
from gkm.hoststate.frames import HEADER_BYTES, frame, size_of
from gkm.templates.rendering import frames
from gkm.templates.rendering.requests import reply_to

_WARM_UP = (
    {"render": [{"a": "{{ 'é' ~ TASKS }}", "b": "{{ 1 / 0 }}"}], "variables": {"TASKS": []}, "rules": ["true"]},
    {"compile": {"a": "{{ x }}", "b": "{{"}, "rules": ["1 +"]},
)


def main() -> None:
    """Reply to rendering requests until the input ends."""
    # Python loads modules as late as it can, and later no file can be opened.
    for sample in _WARM_UP:
        _reply_to(json.dumps(sample).encode())
    gc.freeze()
    process_limits.restrict(frames.HEADROOM_BYTES)
    requests, replies = sys.stdin.buffer, open(0, "wb", closefd=False)  # noqa: SIM115 -- until the end
    _send(replies, b"")
    while header := requests.read(HEADER_BYTES):
        request = requests.read(size_of(header))
        signal.setitimer(signal.ITIMER_PROF, frames.CPU_SECONDS)
        try:
            reply = _reply_to(request)
        except MemoryError:
            os._exit(frames.OUT_OF_MEMORY)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(replies, reply)


def _send(replies: BinaryIO, reply: bytes) -> None:
    replies.write(frame(reply))
    replies.flush()


def _reply_to(request: bytes) -> bytes:
    try:
        reply = json.dumps(reply_to(json.loads(request)), ensure_ascii=False).encode()
    except RecursionError:
        return _error("the template is nested too deeply")
    except UnicodeEncodeError:
        return _error("a rendered text has a lone surrogate, which is no character")
    if len(reply) > frames.MAX_REPLY_BYTES:
        return _error(f"the result has more than {frames.MAX_RESULT_BYTES} bytes")
    return reply


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


if __name__ == "__main__":
    main()
