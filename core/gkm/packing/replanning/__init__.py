"""Plan a run again after a loss, and move as few groups as possible (docs/reference/calculus.md, After a loss)."""
