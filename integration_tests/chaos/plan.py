"""Which runs there are: what each says, when it begins, how fast it goes. All of it follows from the seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agui_relay.framing.fragments import CustomEventAssembler
from agui_relay.projection.observer import HarnessAguiStreamObserver
from agui_relay.source import HarnessItem
from integration_tests import items

WORDS = ("lorem ", "ipsum ", "dolor ", "sit\n", "\u00fcber ", "\u5b57", "\U0001f600 ", '"quoted" ', "\\ ", "amet, ")


@dataclass(frozen=True)
class Plan:
    """The whole of a session; handed to every process as its arguments."""

    seed: int
    runs: int
    minutes: float
    most_items: int
    readers: int
    began: float
    """When the session began, by `time.time()`."""

    def arguments(self) -> list[str]:
        """Return the arguments that `parse` reads."""
        return [str(value) for value in (self.seed, self.runs, self.minutes, self.most_items, self.readers, self.began)]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Plan:
        """Read what `arguments` gave."""
        seed, runs, minutes, most_items, readers, began = arguments
        return cls(int(seed), int(runs), float(minutes), int(most_items), int(readers), float(began))

    def chance(self, *what: object) -> random.Random:
        """Return a source of randomness for one purpose."""
        return random.Random(" ".join(map(str, (self.seed, *what))))

    def begins(self, number: int) -> float:
        """Return when a run begins, by `time.time()`: one after the other, the last ones well before the end."""
        return self.began + 60 * self.minutes * 0.8 * number / self.runs

    def run_id(self, number: int) -> str:
        """Return the id of a run."""
        return f"chaos-{number}"

    def items(self, number: int) -> list[HarnessItem]:
        """Return what a run says: text, custom events small and large, a child; from 50 items up."""
        chance = self.chance("items", number)
        count = round(50 * (self.most_items / 50) ** chance.random())
        return list(_sequence(chance, self.run_id(number), count))

    def pace(self, number: int, count: int) -> tuple[int, float]:
        """Return the pace of a run of so many items: how many at a time, and how many seconds after each time."""
        chance = self.chance("pace", number)
        seconds = chance.uniform(0.05, 0.25) * min(60 * self.minutes, 60.0)
        together = chance.choice((1, 3, 20, 100))
        return together, seconds * together / count

    def projection(self, number: int) -> Digest:
        """Return the digest of the events that the library gives for a run."""
        observer = HarnessAguiStreamObserver(retain_events=False)
        assembler = CustomEventAssembler()
        events: list[bytes] = []
        for item in self.items(number):
            for event in observer.observe(item):
                whole = assembler.accept_encoded(event.model_dump_json(by_alias=True, exclude_none=True).encode())
                if whole is not None:
                    events.append(whole)
        assert not assembler.gap
        return digest(events)


class Digest(NamedTuple):
    """Events, in short: how many, and a hash of them in their order."""

    events: int
    hash: str


def digest(events: Iterable[bytes]) -> Digest:
    """Return the digest of events as JSON."""
    hashing, count = hashlib.sha256(), 0
    for event in events:
        hashing.update(b"%d " % len(event))
        hashing.update(event)
        count += 1
    return Digest(count, hashing.hexdigest())


def _sequence(chance: random.Random, run_id: str, count: int) -> Iterator[HarnessItem]:
    thread_id = f"thread of {run_id}"
    own = {"run_id": run_id, "thread_id": thread_id}
    child = {"run_id": f"{run_id}-child", "thread_id": f"{thread_id}-child"}
    yield items.started(1, **own)
    sequence, child_sequence, said = 1, 0, 0
    text: str | None = None
    child_text: str | None = None
    while said < count - 2:
        said += 1
        way = chance.random()
        if way < 0.7:
            sequence += 1
            if text is None:
                text = ""
                yield items.text_start(sequence, **own)
            elif chance.random() < 0.03:
                yield items.text_end(sequence, text, **own)
                text = None
            else:
                word = chance.choice(WORDS) * chance.choice((1, 1, 1, 5, 200 if way < 0.02 else 1))
                text += word
                yield items.text_delta(sequence, word, **own)
        elif way < 0.9:
            child_sequence += 1
            if child_text is None:
                child_text = ""
                yield items.text_start(child_sequence, **child)
            elif chance.random() < 0.05:
                yield items.text_end(child_sequence, child_text, **child)
                child_text = None
            else:
                word = chance.choice(WORDS)
                child_text += word
                yield items.text_delta(child_sequence, word, **child)
        else:
            sequence += 1
            size = chance.choice((10, 10, 10, 1000, 1000, 60_000 if way < 0.905 else 10))
            yield items.custom(sequence, "note", {"number": said, "text": chance.choice(WORDS) * size}, **own)
    if child_text is not None:
        yield items.text_end(child_sequence + 1, child_text, **child)
    if text is not None:
        sequence += 1
        yield items.text_end(sequence, text, **own)
    yield items.result(sequence + 1, **own)
