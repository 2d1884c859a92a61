"""Which kernels a program compiled although a cache was mounted, and why the cache did not have them."""
