"""Everything that talks to Redis: keys, scripts, publishers, workers and subscriptions."""
