"""The cache controllers: resolve and verify images, aggregate what the nodes say."""
