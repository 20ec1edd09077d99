"""Those whom quota holds back: parked, asked again when quota comes back, and back in the order of all.

Most that comes back is taken by the first who asks for it. So those who are asked stay out of the order until their
turn has come, and are only looked at again for what is left then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import itemgetter
from typing import TYPE_CHECKING

from stellwerk.scheduling.index import Cohort, Lane, WaitClass
from stellwerk.scheduling.policy import queues
from stellwerk.scheduling.units import Units

if TYPE_CHECKING:
    from stellwerk.scheduling.state import WorkloadState

MOST_ASKED = 64
"""Classes of a cohort that are looked at again when one of its queues gives chips back."""


class Parking(Units, ABC):
    """The part of a `Book` that keeps classes out of the order; `asking` are the cohorts of which any are asked."""

    asking: dict[Cohort, None]
    preempts: bool

    @abstractmethod
    def refresh(self, found: WaitClass) -> None:
        """Give a class the entry that its first member and its queue's level ask for."""

    @abstractmethod
    def place_of(self, found: WaitClass, workload: WorkloadState) -> tuple[int, float, float, int]:
        """Where a workload that need not be the first of its class comes in the order of all."""

    def park(self, found: WaitClass, why: str) -> None:
        """Take a class out of the order until quota is given back: `own` its queue's, `cohort` its cohort's."""
        found.parked = why
        (found.account.parked if why == "own" else found.account.cohort.parked)[found] = None
        if why != "own":
            found.account.behind[found] = None
        self.refresh(found)

    def unpark(self, found: WaitClass) -> None:
        """Put a class back in the order; its lanes have a new answer."""
        found.account.parked.pop(found, None)
        found.account.cohort.parked.pop(found, None)
        self._asked(found)
        found.account.behind.pop(found, None)
        found.parked = None
        self.refresh(found)
        self.ask(found)

    def ask(self, found: WaitClass) -> None:
        """A class may have another answer, and may need other units."""
        for lane in found.shape.lanes:
            self.dirty[lane] = None
            if lane.elastic:
                self.sized[lane] = None

    def ask_cohort(self, cohort: Cohort, most: int = MOST_ASKED) -> None:
        """Those whom quota holds back may have another answer; of the parked for whom there is enough so many are
        asked, each in its turn (see `ask_next`)."""
        for found in list(cohort.parked):
            if self._may_start(found):
                del cohort.parked[found]
                cohort.asked[found] = None
                self.ask(found)
                if len(cohort.asked) >= most:
                    break
        if cohort.asked:
            self.asking[cohort] = None
        for found in list(cohort.timed):
            self.ask(found)

    def _may_start(self, found: WaitClass) -> bool:
        """Whether asking a parked class makes sense; owners may also take back what they lent."""
        if None not in found.never:
            return False
        return not queues.lacks_loan(found) or (self.preempts and queues.owns(found))

    def ask_next(self, lane: Lane) -> None:
        """Put the first of those who are asked back in the order of a lane, if nobody in it comes before it.

        Whoever is left with too little by those who came before it is parked again: it costs less to see that than to
        enter it in the order and take it out again.
        """
        places = [
            (self.place_of(found, first), found)
            for cohort in self.asking
            for found in cohort.asked
            if lane in found.shape.lanes and (first := found.line.first()) is not None
        ]
        places.sort(key=itemgetter(0))
        top = lane.top()
        for place, found in places:
            if top is not None and top[:4] < place:
                return
            if self._may_start(found):
                self.unpark(found)
                return
            self._asked(found)
            found.account.cohort.parked[found] = None

    def _asked(self, found: WaitClass) -> None:
        """A class is not asked any more."""
        cohort = found.account.cohort
        if found in cohort.asked:
            del cohort.asked[found]
            if not cohort.asked:
                del self.asking[cohort]

    def ask_rest(self) -> None:
        """Put all who are asked back in the order."""
        for cohort in list(self.asking):
            for found in list(cohort.asked):
                self.unpark(found)
