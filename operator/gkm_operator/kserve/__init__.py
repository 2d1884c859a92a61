"""KServe's KernelCaches as GKMCaches (docs/decisions/0051-kernel-caches-of-kserve.md)."""
