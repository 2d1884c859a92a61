"""Which domains a run uses, and how many of its groups each takes: costs, the tree knapsack, and the bound on it."""
