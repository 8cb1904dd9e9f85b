"""Runs under faults: publishers, workers and readers as processes that are killed, stopped, cut off and left alone."""
