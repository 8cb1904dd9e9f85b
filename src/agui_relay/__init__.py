"""Carries an agent run to every watcher: Harness items from Redis Streams, as AG-UI events, each once and in order."""
