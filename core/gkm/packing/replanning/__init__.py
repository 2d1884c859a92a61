"""A run again, after nodes or budgets were lost: what still stands stays (docs/reference/calculus.md, After a loss)."""
