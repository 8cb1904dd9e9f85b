"""The error that says why something is not a Harness item."""


class ItemError(ValueError):
    """Bytes or an object that are not a valid Harness item. The message says where, and what was expected."""
