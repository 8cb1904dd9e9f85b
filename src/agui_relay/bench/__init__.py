"""What the project's speed is measured by: each case beside a peer or a floor, in one process and one run.

`agui-relay bench` runs the suites. None of it is needed by anything else of the package.
"""

SUITES = {
    "projection": "item bytes to frame bytes",
    "observe": "live items to typed events",
    "fold": "events to a display",
    "worker": "a worker through a real server",
    "publish": "items into Redis",
    "latency": "publish to delivery, idle",
    "fanout": "one run and many readers",
    "growth": "what an item costs as runs, readers and items grow",
    "memory": "of a worker, a reader and Redis",
    "replay": "compact replay and the ya-agent-sdk adapter",
}
"""The suites by name, in the order they are run, and what each measures."""
