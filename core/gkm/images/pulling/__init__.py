"""From a described image to a complete entry of the store: blobs, extraction, the file list, one rename."""
