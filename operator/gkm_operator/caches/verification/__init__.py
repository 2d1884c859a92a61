"""The queue of images to verify, when each is verified again, and the policies."""
