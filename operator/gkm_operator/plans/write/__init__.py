"""Everything that the controller writes to the API server: plans, their status, the status of runs, and Events."""
