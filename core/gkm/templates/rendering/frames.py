"""Limits of rendering, for the parent and the child process."""

MAX_REQUEST_BYTES = 4 << 20
"""Limit of bytes of a request: templates, variables and rules of one group as JSON."""
MAX_RESULT_BYTES = 512 << 10
"""Limit of bytes of the rendered objects of one group as JSON."""
MAX_REPLY_BYTES = MAX_RESULT_BYTES + (16 << 10)
"""Limit of bytes of a reply, with the rendered objects and the results of rules or the problems."""
CPU_SECONDS = 1.0
"""CPU seconds for one request."""
HEADROOM_BYTES = 80 << 20
"""Memory in bytes beyond the child's start (24 MiB): less than 128 MiB in total."""
OUT_OF_MEMORY = 3
"""Exit status of a child that ran out of memory."""
