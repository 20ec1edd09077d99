"""How much of its fair share a queue uses: the order between queues of equal priority.

A queue's dominant share (Ghodsi et al., 2011) is the largest of its shares of the fleet's chips, over accelerators: D =
max(held / all). Its decayed average A follows dA/dt = (D - A) / tau with a half-life of `HALF_LIFE`, so what was used
two days ago counts a quarter. A queue's level is (D + A) / weight; the lowest is served first. D alone forgets that
someone held everything until a minute ago, A alone would let a newcomer take everything for hours.

D changes only when something of the queue starts or ends; A is brought up to date then, and every `TICK` while anything
waits. Between two ticks the order is therefore exact in D and at most a tick old in A. With no queue declared there is
one queue, and no order between queues.

Order alone does not keep shares where work passes what is blocked: whoever asks for little always finds a place, and
with it cuts the units that larger work waits for. So a queue that has used more than `OVER` times what the queue of the
first uses waits with it, but for work that ends before the first starts, while that is no more than `SOON` away (a
short wait for the sake of fairness: Zaharia et al., 2010). If the first has longer to wait nothing is left idle for it.

The arithmetic uses only sums, products and exact halvings, so it gives the same on every platform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk.scheduling.index import Account, Lane
from stellwerk.scheduling.state import Share, State

if TYPE_CHECKING:
    from stellwerk.scheduling.book import Book

HALF_LIFE = 86_400.0
"""Seconds after which past use counts half."""

TICK = HALF_LIFE / 48
"""Seconds between two times that all averages are brought up to date."""

INF = float("inf")
OVER, SOON = 1.1, 1800.0
"""Who is above so many times the level of the first does not pass it for longer than until its start, if that is so
many seconds away at most."""


def level(state: State, account: Account, total: dict[str, int]) -> float:
    """The level of a queue that holds from now on what its account says; its average is brought up to date.

    The average counts what was held since it was last brought up to date, which the share keeps.
    """
    share = state.shares.get(account.name)
    if share is None:
        share = state.shares[account.name] = Share(at=state.now)
    average(share, state.now)
    share.dominant = max((held / total[name] for name, held in account.held.items() if total.get(name)), default=0.0)
    weight = account.queue.weight if account.queue else 1.0
    return (share.dominant + share.average) / weight


def last_level(state: State, account: Account) -> float:
    """The level of a queue when it was last brought up to date."""
    share, weight = state.shares.get(account.name), account.queue.weight if account.queue else 1.0
    return (share.dominant + share.average) / weight if share is not None else 0.0


def most(first: Account, wait: float) -> float:
    """The highest level of a queue whose work may outlast the wait (s) of the first, which is of the queue `first`."""
    return OVER * first.level if wait <= SOON else INF


def yields_no_more(account: Account, before: float, lane: Lane, now: float) -> bool:
    """Whether anybody need not wait with the first of a lane any more, as the level of a queue was `before`."""
    if lane.blocked is None or lane.blocked.at > now + SOON or (top := lane.top()) is None:
        return False
    first = top.found.account
    return account.level > before if account is first else before > OVER * first.level >= account.level


def average(share: Share, now: float) -> None:
    """Let time pass for a share until `now`."""
    if now > share.at:
        share.average = share.dominant + (share.average - share.dominant) * decay((now - share.at) / HALF_LIFE)
        share.at = now


def decay(half_lives: float) -> float:
    """2 ** -half_lives, to nine digits, from sums and products alone."""
    halvings = min(int(half_lives), 1000)
    x = min(half_lives - halvings, 1.0) * 0.6931471805599453
    series = 1.0 - x * (1.0 - x / 2 * (1.0 - x / 3 * (1.0 - x / 4 * (1.0 - x / 5 * (1.0 - x / 6 * (1.0 - x / 7))))))
    return series / (1 << halvings) if halvings < 1000 else 0.0


def next_tick(now: float) -> float:
    """The time of the next tick: a whole number of them since zero, so that it does not depend on when it is asked."""
    return (now // TICK + 1.0) * TICK


def tick(book: Book) -> None:
    """Bring all averages up to date; again after `TICK` while anything waits."""
    for account in book.accounts.values():
        share = book.state.shares.get(account.name)
        if share is not None and (share.dominant or share.average):
            book.weigh(account)
    if book.waiting:
        book.timers.set(("shares", ""), next_tick(book.state.now))
