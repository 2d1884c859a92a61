"""The limits of rendering. Both sides import this."""

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
