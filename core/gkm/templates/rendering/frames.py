"""The limits of rendering, and the frames of requests and replies on a socket. Both sides import this."""

MAX_REQUEST_BYTES = 4 << 20
"""Templates, variables and rules of one group, as JSON."""
MAX_RESULT_BYTES = 512 << 10
"""Rendered objects of one group, as JSON."""
MAX_REPLY_BYTES = MAX_RESULT_BYTES + (16 << 10)
"""With verdicts or problems."""
CPU_SECONDS = 1.0
"""CPU time of one request."""
HEADROOM_BYTES = 80 << 20
"""Memory beyond what the child has before its first request (24 MiB): less than 128 MiB in all."""
OUT_OF_MEMORY = 3
"""Exit status of a child whose request exceeded its memory."""
HEADER_BYTES = 4


def frame(data: bytes) -> bytes:
    """Return a message with its length in front."""
    return len(data).to_bytes(HEADER_BYTES, "big") + data


def size_of(header: bytes) -> int:
    """Return the length of the message behind a header."""
    return int.from_bytes(header, "big")
