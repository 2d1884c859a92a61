"""The nodes of caches: their reports, their liveness, and the totals of each cache."""
