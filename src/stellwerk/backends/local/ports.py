"""Ports for the nodes of one cluster, that no other cluster of this machine is given too.

A port that nobody listens on when it is chosen may be chosen twice before anybody does: Ray's agents listen seconds
later, on all addresses, and a node whose agent finds its port taken is lost. So ports come in blocks. A block is leased
by listening on its first port for as long as the cluster's keeper lives; the kernel gives it back however that ends.
"""

from __future__ import annotations

import random
import socket

_BLOCKS = range(20_000, 32_000, 50)
"""First ports of the blocks, below the range that outgoing connections draw from."""


class NoPorts(Exception):
    """Every block is leased."""


class Ports:
    """The ports of one cluster."""

    def __init__(self) -> None:
        self._leases: list[socket.socket] = []
        self._left: list[int] = []

    def take(self, count: int) -> list[int]:
        """Ports that nobody listens on and that are given to nobody else; NoPorts when there are none left."""
        found: list[int] = []
        while len(found) < count:
            if not self._left:
                self._lease()
            port = self._left.pop()
            if (probe := _bound(port)) is not None:
                probe.close()
                found.append(port)
        return found

    def close(self) -> None:
        """Give all of them back."""
        for lease in self._leases:
            lease.close()
        self._leases, self._left = [], []

    def _lease(self) -> None:
        for first in random.sample(_BLOCKS, len(_BLOCKS)):
            if (lease := _bound(first)) is not None:
                lease.listen(1)
                self._leases.append(lease)
                self._left = list(range(first + 1, first + _BLOCKS.step))
                return
        raise NoPorts(f"all ports from {_BLOCKS.start} to {_BLOCKS.stop} are taken")


def _bound(port: int) -> socket.socket | None:
    """A socket on a port of all addresses, None where somebody else has it."""
    made = socket.socket()
    try:
        made.bind(("", port))
    except OSError:
        made.close()
        return None
    return made
