"""How a projection refuses."""


class AguiObservationError(ValueError):
    """A Harness item could not be observed without changing its meaning. The observer is as it was before."""


class ContinuationError(ValueError):
    """A continuation that is not ours, is damaged, or was written by a newer release."""
