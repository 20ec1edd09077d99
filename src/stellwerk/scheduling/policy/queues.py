"""What a queue may hold: quota, borrowing and lending, counted in chips of each accelerator.

Queues of one cohort lend each other what they do not use. Of its quota a queue lends all, none, or `lend` chips; what
it does not lend is guaranteed to it. Let u be what a queue holds, q its quota and g the guaranteed part. Then at any
time

* u <= q + borrow, where a limit to borrowing was set, and
* the sum over the cohort of max(0, u - g) <= the sum of all that is lent.

So a queue that lent may have to wait until borrowers give back (or, where preemption is enabled, is given it at once).
While such a queue waits within its own quota, nobody in its cohort borrows more; and a workload that has waited for
quota longer than `PATIENCE` is not passed any more by later work of its own queue, nor by later borrowers.

Nobody waits for each other in a circle: an owner is waited for only if no older work of its own queue holds it back, so
what it waits for is chips that somebody holds, and all other waiting is for older work. While owners use all that is
theirs, a workload that needs more than its queue's quota waits, and so does, after `PATIENCE`, later work of its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk.scheduling.index import Account, Shape, WaitClass
from stellwerk.scheduling.model import Option, Queue, Reason
from stellwerk.scheduling.state import State, WorkloadState

if TYPE_CHECKING:
    from stellwerk.scheduling.book import Book

PATIENCE = 1800.0
"""Seconds after which a workload that waits for quota is not passed any more."""


def queue_of(state: State, name: str) -> Queue | None:
    """The queue of that name; undeclared names exist, unlimited, only in a fleet that declares no queues."""
    return state.queues.get(name) or (Queue(name) if not state.queues else None)


def most(account: Account, accelerator: str) -> int | None:
    """Chips of an accelerator that a queue could ever hold; None: as many as there are."""
    if accelerator not in account.quota:
        return None
    most = account.guaranteed[accelerator] + account.cohort.lendable.get(accelerator, 0)
    cap = account.caps[accelerator]
    return most if cap is None else min(most, cap)


def available(account: Account, accelerator: str) -> int | None:
    """Chips of an accelerator that a queue may be granted now; None: as many as there are."""
    if accelerator not in account.quota:
        return None
    held, own = account.held.get(accelerator, 0), account.guaranteed[accelerator]
    free = max(0, own - held) + max(0, account.cohort.left[accelerator])
    cap = account.caps[accelerator]
    return free if cap is None else min(free, cap - held)


def _lacks(account: Account, accelerator: str, needed: int) -> str | None:
    """What keeps a queue from that many more chips, whoever waits: `own` its limit, `cohort` what others hold."""
    held, cap, own = account.held.get(accelerator, 0), account.caps[accelerator], account.guaranteed[accelerator]
    after = held + needed
    if cap is not None and after > cap:
        return "own"
    if after <= own:
        return None
    return "cohort" if after - (held if held > own else own) > account.cohort.left[accelerator] else None


def lacks_loan(found: WaitClass) -> bool:
    """Whether others hold what a class of one option needs: however often it is asked, it will be held back."""
    held = found.account.held
    for accelerator, needed, own, most, _ in found.quotas:
        before = held.get(accelerator, 0)
        if before > most:
            return False
        lent = needed if before >= own else before + needed - own
        if lent > 0 and lent > found.account.cohort.left[accelerator]:
            return True
    return False


def held_back(found: WaitClass, workload: WorkloadState, chips: dict[str, int], now: float) -> str | None:
    """What keeps a workload from `chips` now: `own` its queue's limit, `cohort` what others hold; None: nothing."""
    account, cohort = found.account, found.account.cohort
    for accelerator, needed in chips.items():
        if accelerator not in account.quota:
            continue
        if why := _lacks(account, accelerator, needed):
            return why
        after = account.held.get(accelerator, 0) + needed
        borrows = after > account.quota[accelerator]
        if borrows and any(
            other.account is not account
            and accelerator in other.shape.chips[0]
            and owns(other)
            and not _behind_its_own(other, accelerator, now)
            for other in cohort.claimants.values()
        ):
            return "cohort"
        if (
            cohort.parked
            and after > account.guaranteed[accelerator]
            and _kept(found, workload, accelerator, borrows, now)
        ):
            return "cohort"
    if account.parked and any(
        _aged(other, workload, now) and not other.shape.asks.isdisjoint(chips) for other in account.parked
    ):
        return "own"
    return None


def _kept(found: WaitClass, workload: WorkloadState, accelerator: str, borrows: bool, now: float) -> bool:
    """Whether what is left to lend is kept for somebody that waits: for an owner, or for one that waited too long."""
    for other in found.account.cohort.parked:
        if other is found or accelerator not in other.shape.asks or accelerator not in other.account.quota:
            continue
        if None not in other.never:
            continue
        if borrows and other.account is not found.account and owns(other):
            if not _behind_its_own(other, accelerator, now):
                return True
            continue
        if (borrows or other.account is found.account) and _aged(other, workload, now):
            return True
    return False


def owns(found: WaitClass) -> bool:
    """Whether the first option of a class stays within its queue's own quota of every accelerator."""
    held = found.account.held
    for accelerator, needed, _, _, most in found.quotas:  # noqa: SIM110 (asked often, and a generator costs twice as much)
        if not needed or held.get(accelerator, 0) > most:
            return False
    return True


def owns_less(account: Account, given: dict[str, int]) -> bool:
    """Whether anybody of a queue that was just given chips, by accelerator, is no owner any more because of them."""
    claims = (each for each in account.cohort.claimants.values() if each.account is account)
    for found in (*account.behind, *claims):
        for name, chips in given.items():
            left = account.quota.get(name, 0) - account.held.get(name, 0)
            if left < found.shape.chips[0].get(name, 0) <= left + chips:
                return True
    return False


def borrowed(account: Account, accelerator: str) -> int:
    """Chips that a queue holds beyond its quota."""
    return max(0, account.held.get(accelerator, 0) - account.quota.get(accelerator, 0))


def _aged(other: WaitClass, workload: WorkloadState, now: float) -> bool:
    """Whether a class that waits for quota, and could ever run, is not to be passed by `workload`."""
    first = other.line.first()
    if first is None or now - first.waiting_since < PATIENCE or None not in other.never:
        return False
    return (other.rank, first.order) < (-workload.demand.priority, workload.order)


def _behind_its_own(other: WaitClass, accelerator: str, now: float) -> bool:
    """Whether older work of its own queue, which has waited too long, may hold a class back."""
    account, first = other.account, other.line.first()
    return first is not None and any(
        each is not other and accelerator in each.shape.asks and _aged(each, first, now)
        for each in (*account.classes, *account.parked, *account.behind)
    )


def patience_over(book: Book, workload: WorkloadState) -> None:
    """The first of a class may have waited for too long: the others of its cohort may have another answer."""
    found = book.class_of(workload.demand)
    late = book.state.now >= workload.waiting_since + PATIENCE
    if late and found.account.quota and found.line.first() is workload:
        book.ask_cohort(found.account.cohort, len(found.account.cohort.parked))


def never(account: Account, shape: Shape, option: int) -> Reason | None:
    """Why a queue could never hold an option, whatever others use."""
    for accelerator, needed in shape.chips[option].items():
        allowed = most(account, accelerator)
        if allowed is not None and needed > allowed:
            return over(account, accelerator, needed)
    return None


def over(account: Account, accelerator: str, needed: int) -> Reason:
    """The sentence about a quota that is too small, now or for ever."""
    allowed, held = most(account, accelerator), account.held.get(accelerator, 0)
    assert allowed is not None
    free = available(account, accelerator) or 0
    quota = account.quota[accelerator]
    numbers = (
        ("accelerator", accelerator),
        ("quota", allowed),
        ("owned", quota),
        ("held", held),
        ("available", free),
        ("needed", needed),
    )
    head = f"queue {account.name} may hold {allowed} chips of {accelerator}"
    if needed > allowed:
        return Reason("impossible", f"{head}, and this needs {needed}", numbers)
    if free + held < allowed and held + needed <= allowed:
        return Reason("quota", f"{head}, holds {held}, others hold what it lent, and this needs {needed}", numbers)
    return Reason("quota", f"{head}, holds {held}, and this needs {needed}", numbers)


def kept(account: Account, accelerator: str) -> Reason:
    """What is left is kept for somebody who waits for quota and comes before."""
    free = available(account, accelerator) or 0
    message = f"the {free} chips of {accelerator} that queue {account.name} could hold are kept for earlier work"
    return Reason("quota", message, (("accelerator", accelerator), ("available", free)))


def usage(account: Account) -> dict[str, int]:
    """Chips per accelerator that the live attempts of a queue hold."""
    return {name: held for name, held in account.held.items() if held}


def asked(option: Option) -> int:
    """Chips that an option asks for in all."""
    return option.chips


def blocked(found: WaitClass, workload: WorkloadState, option: int, now: float) -> bool:
    """Whether quota keeps a workload from an option now."""
    return bool(found.account.quota) and held_back(found, workload, found.shape.chips[option], now) is not None
