"""Links between nodes that lose, spoil or silence messages, on a stated schedule.

Unlike `Fault`, which counts all rounds of a party, these look at the step that sends: only the
exchanges under test suffer, while whoever runs the schedule still hears every node.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

import eigenmesh as em
from eigenmesh.connect import sites_of
from eigenmesh.engines.in_process import InProcess
from eigenmesh.runtime import wire
from eigenmesh.runtime.federation import Federation


class Links:
    """A host whose messages to neighbours pass through here."""

    def __init__(self, host, loses=0.0, seed=0, spoils=None, dies=None):
        self._host, self._loses, self._spoils, self._dies = host, loses, spoils, dies
        self._rng = np.random.default_rng([seed, *host.party.encode()])
        self._sent = Counter()
        self._dead = False

    @property
    def party(self):
        return self._host.party

    def handle(self, request):
        return None if self._dead else self._host.handle(request)

    def accept(self, request, inbox):
        return None if self._dead else self._host.accept(request, inbox)

    def offer(self, request):
        step = wire.loads(request)["send"]
        self._sent[step] += 1
        now = (self.party, step, self._sent[step])
        self._dead = self._dead or now == self._dies
        if self._dead:
            return None, None
        reply, outbox = self._host.offer(request)
        if outbox is not None and now == self._spoils:
            outbox = {to: with_nan(message) for to, message in outbox.items()}
        if outbox is not None:
            outbox = {to: m for to, m in outbox.items() if self._rng.random() >= self._loses}
        return reply, outbox


def with_nan(envelope):
    """The envelope with a message that its sender should never have let out."""
    start = envelope.index(wire.MAGIC)
    message = wire.loads(envelope[start:])
    for name, value in message.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
            message[name] = np.full_like(value, np.nan)
    return envelope[:start] + wire.dumps(message)


def federation_over(parts: em.Partitioned, topology, *, on_loss, max_age=50, **faults):
    """A federation in this process whose links have these faults."""
    engine = InProcess(sites_of(parts), lambda host: Links(host, **faults))
    graph = {"split": "rows", "topology": topology}
    return Federation(engine, **graph, on_loss=on_loss, max_age=max_age)
