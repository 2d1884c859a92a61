"""Pull a described image into a complete entry of the store: blobs, extraction, file list, one rename."""
