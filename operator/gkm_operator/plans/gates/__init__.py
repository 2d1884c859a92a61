"""Pods of a run wait behind a scheduling gate for its plan, and start where it says (docs/decisions/0044)."""
