"""Creates and releases ComputeDomains: for PodCliqueSets, and for pods with a label."""
