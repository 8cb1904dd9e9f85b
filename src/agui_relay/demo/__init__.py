"""One agent run to show and to test with: recorded once, played through Redis to three watchers."""
