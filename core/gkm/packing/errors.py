"""Errors of the planner that a caller may handle."""

__all__ = ("TooLargeError",)


class TooLargeError(ValueError):
    """The problem is larger than what the planner solves: its sizes, and what to change."""
