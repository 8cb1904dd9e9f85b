"""The limits and times of a relay, with the defaults that are promised."""

from __future__ import annotations

import logging
import os
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_log = logging.getLogger("agui_relay.settings")

_PREFIX = "AGUI_RELAY_"
# Variables that are read elsewhere: by the command, and by our tests.
_ADDRESS = "redis_url"
_OF_TESTS = "test_"

_KIB = 1024
_MIB = 1024 * 1024

Bytes = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RelaySettings(BaseSettings):
    """What a relay may hold and how long; every process of a namespace should use the same values.

    Sizes are UTF-8 bytes, times are seconds. Each field is also read from the environment variable
    `AGUI_RELAY_<FIELD>`; an argument wins over the environment. A variable `AGUI_RELAY_...` that names no field has no
    effect, and is told once in the log `agui_relay.settings`.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True, use_attribute_docstrings=True)

    namespace: str = Field(default="agui", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """First word of every key and channel."""
    partitions: int = Field(default=1, ge=1, le=1024)
    """Hash tags that runs are spread over; more than one only helps on a Redis Cluster."""

    item_bytes: Bytes = 8 * _MIB
    """Largest encoded source item."""
    batch_items: int = Field(default=256, ge=1, le=4096)
    """Items in one append, fetch or commit."""
    batch_bytes: Bytes = 4 * _MIB
    """Bytes of items in one append, fetch or commit; a larger item goes alone."""
    publisher_buffer_bytes: Bytes = 16 * _MIB
    """Items a publisher holds before `publish` waits."""
    publisher_window_bytes: Bytes = 4 * _MIB
    """Acknowledged items a publisher keeps, to send them again when a failover lost them."""
    unread_bytes: Bytes = 64 * _MIB
    """Items of a run that wait for a worker before `publish` waits."""
    announcement_bytes: Bytes = 64 * _KIB
    """Frames inside one announcement; more are read from the log."""
    announcement_fanout_bytes: Bytes = 4 * _MIB
    """Frames inside one announcement, times the run's subscriptions."""
    assembler_bytes: Bytes = 64 * _MIB
    """Fragments that a subscription's assembler holds."""
    assembler_pending: int = Field(default=8, ge=1)
    """Fragmented events that a subscription's assembler holds."""

    frame_log_bytes: Bytes = 64 * _MIB
    """Frames of a run that are kept; older ones go, whole events at a time, once the display checkpoint covers them."""
    display_tail_bytes: Bytes = 16 * _MIB
    """Frames behind a run's display checkpoint, or its first frames, until the next one is made; when the checkpoint is
    larger, as many as it has bytes."""
    display_bytes: Bytes = 64 * _MIB
    """Display checkpoint of a run, all views together. A run that would have a larger one is left without."""
    items_kept_bytes: Bytes = 16 * _MIB
    """Items kept behind the cursor, and rejected items kept; older ones go. Unread items never go."""

    ended_run_kept: Seconds = 3600
    """How long the keys of an ended run stay."""
    live_run_kept: Seconds = 86_400
    """How long the keys of a live run stay after the last sign of its publisher."""
    subscription_lease: Seconds = 15
    """How long a subscription counts after its last heartbeat; renewed at a third."""
    publisher_lease: Seconds = 30
    """How long a run counts as live after its publisher's last call; renewed at a third."""
    settle_timeout: Seconds = 60
    """How long leaving a publisher's block waits until everything is stored."""
    claim_idle: Seconds = 5
    """How long a worker may be silent before another claims its run; renewed at a third."""
    worker_entries: int = Field(default=64, ge=1, le=1024)
    """Runs that a worker holds at a time."""
    worker_turns: int = Field(default=4, ge=1)
    """Batches of one run before others have their turn."""
    worker_round_bytes: Bytes = 16 * _MIB
    """Items of all runs that a worker fetches at a time."""
    worker_cached_runs: int = Field(default=16_384, ge=1)
    """Runs whose projector a worker keeps between batches."""

    def model_post_init(self, context: Any, /) -> None:
        """Tell of variables that were meant for us, most likely, and are misspelt."""
        for variable in os.environ:
            if variable.upper().startswith(_PREFIX):
                _tell_unless_known(variable)


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one."""
    return max(1, round(seconds * 1000))


@cache  # once is enough
def _tell_unless_known(variable: str) -> None:
    name = variable[len(_PREFIX) :].lower()
    known = (*RelaySettings.model_fields, _ADDRESS)
    if name in known or name.startswith(_OF_TESTS):
        return
    nearest = get_close_matches(name, known, n=1)
    _log.warning(
        "the environment variable %s is no setting and has no effect%s",
        variable,
        f"; {_PREFIX}{nearest[0].upper()} is one" if nearest else "",
    )
