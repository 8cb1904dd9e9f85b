"""The texts of the recorded runs: prose, source code, tables and logs, from a small grammar and a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

_WORDS = {
    "noun": """
        queue cursor reader writer window ledger parser budget tide station survey sensor market harvest policy archive
        river bridge reactor turbine colony glacier vessel orbit membrane enzyme lattice treaty census satellite cable
        grid furnace reservoir corridor estuary canopy sediment Größe façade naïveté 潮位 航路
    """,
    "verb": """
        carries follows measures replaces confirms delays exceeds limits supports explains predicts weakens doubles
        reports restores isolates reduces describes anticipates contradicts
    """,
    "adjective": """
        steady narrow remote early partial reliable costly seasonal local hidden dense shallow recent stable unexpected
        careful idle public bounded
    """,
    "name": """
        queue cursor reader window ledger parser budget entry batch frame lease cache record offset bounds state
    """,
}
_NOUNS, _VERBS, _ADJECTIVES, _NAMES = (words.split() for words in _WORDS.values())
_ENDINGS = (
    "in most of the samples",
    "although nobody expected it",
    "by about {n} percent",
    "since {year}",
    "as “{noun}” in the second table shows",
    "whenever the {noun} is {adjective}",
    "on the {adjective} side of the {noun}",
    "and the {noun} {verb} the {other}",
)
_SENTENCES = (
    "The {adjective} {noun} {verb} the {other} {ending}.",
    "Every {noun} {verb} a {adjective} {other}, {ending}.",
    "What {verb} the {noun} is the {other}: {n} of {m} cases, {ending}.",
    "Without a {adjective} {noun} the {other} {verb} nothing {ending}.",
    "I compare the {noun} with the {other}; `{noun}_{other}` {verb} it {ending}.",
)
_STATEMENTS = (
    "{a} = self._{b}.get({c!r}, {n})",
    'if {a} is None or {a}.{b} > {n}:\n{indent}    raise ValueError(f"expected {b} up to {n}, got {{{a}!r}}")',
    "for {a} in sorted({b}, key=lambda entry: entry.{c}):\n{indent}    total += {a}.{c} * {n}",
    'logger.debug("%s: %d of {n}\\n", {a}.{b}, len({c}))',
    "{a}, {b} = {c}.partition('{n}\\\\t')[::2]",
    "self._{a}[{b}] = [{c} for {c} in {a} if {c}.{b} not in seen]",
    "# The {a} is kept: a late {b} is compared with it.",
)
_LOG = (
    "INFO  {name}: accepted {n} of {m} records from shard-{k} in {n}.{k} ms",
    "DEBUG {name}: lease {name}-{k} renewed, {m} entries pending",
    'WARN  {name}: retry {k} after timeout, backoff {n} ms (upstream="10.0.{k}.{n}")',
    "INFO  {name}: compacted segment {m}-{k}, {n} tombstones dropped",
)


class Texts:
    """A source of texts, the same for the same seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def sentence(self) -> str:
        """Write one sentence of prose, here and there with more than ASCII in it."""
        choice, number = self.random.choice, self.random.randrange
        words = {
            "noun": choice(_NOUNS),
            "other": choice(_NOUNS),
            "verb": choice(_VERBS),
            "adjective": choice(_ADJECTIVES),
        }
        figures = {"n": number(2, 98), "m": number(100, 900), "year": number(1950, 2026)}
        ending = choice(_ENDINGS).format(**words, **figures)
        return choice(_SENTENCES).format(**words, **figures, ending=ending)

    def prose(self, characters: int) -> str:
        """Write paragraphs of at least so many characters, with headings and lists as a model writes them."""
        written: list[str] = []
        size = 0
        while size < characters:
            sentences = [self.sentence() for _ in range(self.random.randrange(2, 6))]
            kind = self.random.randrange(6)
            if kind == 0:
                block = "\n".join(f"- **{self.random.choice(_NOUNS)}**: {sentence}" for sentence in sentences)
            elif kind == 1:
                block = (
                    f"## The {self.random.choice(_ADJECTIVES)} {self.random.choice(_NOUNS)}\n\n{' '.join(sentences)}"
                )
            else:
                block = " ".join(sentences)
            written.append(block)
            size += len(block) + 2
        return "\n\n".join(written)

    def code(self, characters: int) -> str:
        """Write a Python module of at least so many characters."""
        choice = self.random.choice
        written = [f'"""{self.sentence()}"""\n\nimport logging\n\nlogger = logging.getLogger(__name__)\n']
        size = len(written[0])
        while size < characters:
            name = f"{choice(_NAMES)}_{choice(_NAMES)}"
            lines = [
                f"    def {name}(self, {choice(_NAMES)}: str, limit: int = {self.random.randrange(1, 512)}) -> int:"
            ]
            lines.append(f'        """{self.sentence()}"""\n        total = 0')
            lines += [f"        {self._statement()}" for _ in range(self.random.randrange(3, 9))]
            lines.append("        return total\n")
            block = "\n".join(lines)
            if self.random.randrange(8) == 0:
                block = f"\nclass {name.title().replace('_', '')}:\n{block}"
            written.append(block)
            size += len(block) + 1
        return "\n".join(written)

    def rows(self, count: int) -> list[dict[str, object]]:
        """Make rows of a table, as a search or a query returns them."""
        number = self.random.randrange
        return [
            {
                "id": number(10_000, 99_999),
                "title": self.sentence(),
                "url": f"https://archive.example/{self.random.choice(_NAMES)}/{number(1_000)}",
                "score": number(1_000) / 1_000,
                "tags": self.random.sample(_NAMES, 2),
            }
            for _ in range(count)
        ]

    def log(self, characters: int) -> str:
        """Write lines of a service's log, of at least so many characters."""
        number = self.random.randrange
        messages = []
        for _ in range(200):
            fields = {"name": self.random.choice(_NAMES), "n": number(100), "m": number(1_000), "k": number(10)}
            messages.append(self.random.choice(_LOG).format(**fields))
        lines: list[str] = []
        size = 0
        while size < characters:
            minute, second = divmod(len(lines) // 4, 60)
            lines.append(
                f"2026-11-29T{minute // 60 % 24:02}:{minute % 60:02}:{second:02}Z {self.random.choice(messages)}"
            )
            size += len(lines[-1]) + 1
        return "\n".join(lines)

    def cut(self, text: str, shortest: int, longest: int) -> Iterator[str]:
        """Cut a text as a model streams it: pieces within these bounds, in characters."""
        start = 0
        while start < len(text):
            end = start + self.random.randint(shortest, longest)
            yield text[start:end]
            start = end

    def _statement(self) -> str:
        a, b, c = self.random.sample(_NAMES, 3)
        return self.random.choice(_STATEMENTS).format(a=a, b=b, c=c, n=self.random.randrange(1, 999), indent=" " * 8)
