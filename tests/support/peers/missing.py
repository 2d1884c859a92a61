"""What the testbed says when a partner or a tool is not on this machine; it imports nothing of a test framework."""


class Missing(Exception):
    """Something the testbed needs is not here; the message is one sentence that names it and how to get it."""
