"""What is different in a what-if: pools, quotas, the policy, and workloads that nobody has submitted.

A change applies to every fleet that the log tells of, so that a pool that was declared anew is changed anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stellwerk.scheduling.model import Demand, Fleet, PolicyName, Pool, Queue
from stellwerk.spec.problems import Flaw, did_you_mean, listed, shown

_AMOUNT = re.compile(r"([+-]?)(\d{1,9})")
_MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class Amount:
    """`+2` and `-1` change a number, `4` replaces it."""

    sign: str
    number: int

    def of(self, current: int) -> int:
        """The number that comes of `current`; may be negative."""
        return self.number if not self.sign else current + (self.number if self.sign == "+" else -self.number)


@dataclass(frozen=True, slots=True)
class PoolChange:
    """A pool has more or fewer units."""

    pool: str
    amount: Amount

    def apply(self, pool: Pool) -> Pool:
        """The pool with another maximum; what it always keeps goes along where it is of fixed size."""
        maximum = max(0, self.amount.of(pool.maximum))
        minimum = maximum if pool.minimum == pool.maximum else min(pool.minimum, maximum)
        return replace(pool, maximum=maximum, minimum=minimum, buffer=min(pool.buffer, maximum))


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A queue has more or fewer chips of an accelerator."""

    queue: str
    accelerator: str
    amount: Amount

    def apply(self, queue: Queue) -> Queue:
        """The queue with another quota."""
        quota = dict(queue.quota or ())
        if self.amount.sign and self.accelerator not in quota:
            return queue
        quota[self.accelerator] = max(0, self.amount.of(quota.get(self.accelerator, 0)))
        return replace(queue, quota=tuple(sorted(quota.items())))


@dataclass(frozen=True, slots=True)
class Change:
    """All that is different. `submit` comes at the end of the log, with the pools `grown` that it brings into being."""

    pools: tuple[PoolChange, ...] = ()
    quotas: tuple[QuotaChange, ...] = ()
    policy: PolicyName | None = None
    preempt: bool = False
    submit: tuple[Demand, ...] = ()
    grown: tuple[Pool, ...] = ()

    @property
    def of_fleet(self) -> bool:
        """Whether the fleet or its policy is another."""
        return bool(self.pools or self.quotas or self.policy or self.preempt)

    def apply(self, fleet: Fleet) -> Fleet:
        """The fleet as it would be."""
        pools, queues = list(fleet.pools), list(fleet.queues)
        for change in self.pools:
            pools = [change.apply(pool) if pool.name == change.pool else pool for pool in pools]
        for quota in self.quotas:
            queues = [quota.apply(queue) if queue.name == quota.queue else queue for queue in queues]
        changed = replace(fleet, pools=tuple(pools), queues=tuple(queues), preempt=fleet.preempt or self.preempt)
        return changed if self.policy is None else replace(changed, policy=self.policy)

    def grow(self, fleet: Fleet) -> Fleet:
        """The fleet with the pools that the submitted workloads bring into being."""
        known = {pool.name for pool in fleet.pools}
        new = tuple(pool for pool in self.grown if pool.name not in known)
        return replace(fleet, pools=fleet.pools + new) if new else fleet

    def check(self, fleet: Fleet) -> None:
        """Raise `Flaw` when it names what this fleet does not have, or leaves less than nothing."""
        for change in self.pools:
            pool = fleet.pool(change.pool)
            if pool is None:
                raise _unknown("pool", change.pool, [pool.name for pool in fleet.pools])
            _check_left(change.amount, pool.maximum, f"{pool.name} has {pool.maximum} units")
        for quota in self.quotas:
            queue = next((queue for queue in fleet.queues if queue.name == quota.queue), None)
            if queue is None:
                raise _unknown("queue", quota.queue, [queue.name for queue in fleet.queues])
            held = dict(queue.quota or ())
            if quota.amount.sign and quota.accelerator not in held:
                message = f"{queue.name} has no quota of {quota.accelerator}, so nothing can be added to it"
                raise Flaw("no-quota", message, f"write {queue.name}:{quota.accelerator}=N for a quota of N chips")
            had = held.get(quota.accelerator, 0)
            _check_left(quota.amount, had, f"{queue.name} has a quota of {had} chips of {quota.accelerator}")

    def told(self, fleet: Fleet) -> list[str]:
        """Each difference from this fleet in words."""
        after = self.apply(fleet)
        words = [
            f"{pool.name}: {pool.maximum} -> {other.maximum} units"
            for pool, other in zip(fleet.pools, after.pools, strict=True)
            if pool.maximum != other.maximum
        ]
        for queue, other in zip(fleet.queues, after.queues, strict=True):
            had, has = dict(queue.quota or ()), dict(other.quota or ())
            words += [
                f"{queue.name}: {had.get(name, 'no')} -> {chips} chips of {name}"
                for name, chips in has.items()
                if had.get(name) != chips
            ]
        if after.policy != fleet.policy:
            words.append(f"policy {after.policy} instead of {fleet.policy}")
        if after.preempt != fleet.preempt:
            words.append("the policy preempts")
        return [*words, *(f"submitted: {demand.name} ({demand.options[0].short})" for demand in self.submit)]


def parse_pool(text: str) -> PoolChange:
    """`POOL=+2`, `POOL=-1` or `POOL=4`. Raises `Flaw`."""
    name, equals, amount = text.rpartition("=")
    if not equals or not name.strip():
        raise Flaw("change", f"{shown(text)} changes no pool", "write for example POOL=+2, POOL=-1 or POOL=4")
    return PoolChange(name.strip(), parse_amount(amount, text))


def parse_quota(text: str, own: Iterable[str] = ()) -> QuotaChange:
    """`QUEUE:ACCELERATOR=+8`, also `-8` and `8`; `own` are accelerators that only the fleet has. Raises `Flaw`."""
    from stellwerk.spec.request import named

    place, equals, amount = text.rpartition("=")
    queue, colon, word = place.partition(":")
    if not (equals and colon and queue.strip() and word.strip()):
        mend = "write for example research:tpu-v6e=+16, =-16 or =64"
        raise Flaw("change", f"{shown(text)} changes no quota", mend)
    accelerator = named(word.strip(), frozenset(own))[0]
    return QuotaChange(queue.strip(), accelerator, parse_amount(amount, text))


def parse_amount(text: str, within: str) -> Amount:
    """`+2`, `-1` or `4`. Raises `Flaw`."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or int(match[2]) > _MOST:
        message = f"{shown(text)} in {shown(within)} is no number of units or chips"
        raise Flaw("change", message, "write +2, -1 or 4")
    return Amount(match[1], int(match[2]))


def _unknown(what: str, name: str, known: list[str]) -> Flaw:
    had = f"it has {listed(known)}" if known else f"it has no {what}s"
    return Flaw(f"unknown-{what}", f"the fleet has no {what} {shown(name)}; {had}", did_you_mean(name, known))


def _check_left(amount: Amount, had: int, told: str) -> None:
    if not 0 <= amount.of(had) <= _MOST:
        raise Flaw("change", f"{told}; {amount.sign}{amount.number} leaves {amount.of(had)}")
