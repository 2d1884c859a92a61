"""What nodes report about caches, watched and summed up."""
