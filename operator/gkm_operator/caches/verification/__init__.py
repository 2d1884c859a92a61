"""The queue that verifies images, the schedule of rechecks, and the watch on policy files."""
