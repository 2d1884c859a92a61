"""The queue that verifies images, and the schedule of rechecks."""
