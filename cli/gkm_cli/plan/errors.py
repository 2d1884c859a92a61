"""What ends `gkm plan` with exit code 1: it was meant well, and there is no answer."""


class PlanningFailed(Exception):
    """There is no answer; the message says why, and what to do."""
