"""The small library inside a workload: who am I, on which hardware, where do checkpoints go, should I stop.

It needs the standard library only, so that a training script can use it in every process of every host. The same
calls answer sensibly outside Stellwerk, where a script runs by hand.
"""

from stellwerk.runtime.context import Context, current

__all__ = ["Context", "current"]
