"""What an attempt costs at its pools' prices, also when what it holds changes while it runs.

Between two changes the rate is constant; at each change what was spent is written down. Unknown prices count as
nothing, emulated hardware as what it would cost.
"""

from __future__ import annotations

from stellwerk.scheduling.state import Attempt, State


def price_per_hour(state: State, attempt: Attempt) -> float:
    """US dollars per hour of what an attempt holds, with what it has not left yet."""
    total = 0.0
    for grant in attempt.grants + attempt.leaving if attempt.leaving else attempt.grants:
        pool = state.pools.get(grant.pool)
        total += grant.chips * (pool.price or 0.0) if pool else 0.0
    return total


def spent(state: State, attempt: Attempt) -> float:
    """US dollars that an attempt has cost so far."""
    since = attempt.began if attempt.settled_at is None else attempt.settled_at
    until = state.now if attempt.finished is None else attempt.finished
    return attempt.spent + price_per_hour(state, attempt) * (until - since) / 3600.0


def settle(state: State, attempt: Attempt) -> None:
    """Write down what was spent so far: what the attempt holds is about to change."""
    attempt.spent, attempt.settled_at = spent(state, attempt), state.now
