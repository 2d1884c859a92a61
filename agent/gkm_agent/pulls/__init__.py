"""Pulls of cache images: job, workers, order, retries and timing."""
