"""Remove scheduling gates from a Run's pods once it has a plan, and set their planned nodes (docs/decisions/0044)."""
