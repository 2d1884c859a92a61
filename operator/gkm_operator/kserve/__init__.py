"""Make GKMCaches from KServe's KernelCaches (docs/decisions/0051-kernel-caches-of-kserve.md)."""
