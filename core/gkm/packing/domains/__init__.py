"""Choose the domains of a run, and how many groups each takes: costs, the tree knapsack, and a lower bound."""
