"""The decision core: events in, commands out, no I/O."""

from stellwerk.scheduling.evaluation import Verdict
from stellwerk.scheduling.scheduler import Scheduler
from stellwerk.scheduling.state import State

__all__ = ["Scheduler", "State", "Verdict"]
