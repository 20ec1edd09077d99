"""Philly (Microsoft, 2017): CSV tables of GPU jobs, in the two headers that are about.

`timestamp,duration,num_gpus,gpu_time,cluster` (the published table; submit times as dates) and
`job_id,submit_time,num_gpu,duration,user,vc` (seconds). A virtual cluster is a queue. There are no estimates,
no priorities and no waits in either. Jobs of no GPU are left out.
"""

from __future__ import annotations

from itertools import compress

from stellwerk.simulation.traces.model import Job, Trace, make_trace
from stellwerk.simulation.traces.rows import Rows

_SUBMIT = ("submit_time", "timestamp")
_CHIPS = ("num_gpu", "num_gpus")


def fits(header: list[str]) -> bool:
    """Whether a CSV's header is Philly's."""
    return "duration" in header and any(n in header for n in _SUBMIT) and any(n in header for n in _CHIPS)


def read(rows: Rows, name: str, accelerator: str | None) -> Trace:
    """The jobs of a Philly table. Raises `SpecError` with the place of what cannot be read."""
    submit, chips = (next(n for n in names if n in rows.header) for names in (_SUBMIT, _CHIPS))
    counts = rows.wholes(chips)
    ids = rows.column("job_id") or [str(index) for index in range(len(rows))]
    columns = (
        ids,
        rows.texts("user", default="unknown"),
        rows.texts("vc", "cluster", default="default"),
        rows.times(submit),
        rows.numbers("duration"),
        counts,
    )
    jobs = list(compress(map(Job, *columns), counts))
    return make_trace(name, jobs, "philly", {"no GPU": len(rows) - len(jobs)}, accelerator)
