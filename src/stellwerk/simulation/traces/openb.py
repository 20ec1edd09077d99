"""Alibaba cluster-trace-gpu-v2023 ("openb"): the pod lists, CSV.

What a pod list says, and what is made of it:

* `num_gpu` GPUs are chips. `gpu_milli` below 1000 asks for a share of one GPU; Stellwerk hands out whole
  chips, so that pod takes one chip, and the tag `gpu_milli` keeps what it asked for. Pods of no GPU are left
  out.
* Submit is `creation_time`, duration is `deletion_time - scheduled_time`, the recorded wait the difference of
  the two starts. Pods that were never scheduled ran never and are left out, and so are those deleted in the
  second they were scheduled.
* `qos` becomes the priority: LS (latency sensitive) and Guaranteed are high, Burstable normal, BE (best
  effort) low.
* `gpu_spec` (the models a pod accepts, `V100M16|V100M32`) is kept as a tag; the pod runs on the replay's
  accelerator.

The lists without times (multigpu, for packing studies) cannot be replayed and are refused.
"""

from __future__ import annotations

from collections import Counter

from stellwerk.simulation.traces.model import Job, Tags, Trace, make_trace
from stellwerk.simulation.traces.rows import Rows, refuse

_PRIORITY = {"LS": 100, "Guaranteed": 100, "Burstable": 0, "BE": -100}
_TIMES = ("creation_time", "deletion_time", "scheduled_time")


def fits(header: list[str]) -> bool:
    """Whether a CSV's header is a pod list's."""
    return {"num_gpu", "gpu_milli"} <= set(header)


def read(rows: Rows, name: str, accelerator: str | None) -> Trace:
    """The jobs of a pod list. Raises `SpecError` with the place of what cannot be read."""
    missing = [column for column in _TIMES if column not in rows.header]
    if missing:
        message = f"this pod list has no {', '.join(missing)}; without times there is nothing to replay"
        refuse(rows.file, "missing-column", message, "take a list with times, as openb_pod_list_default.csv", 1)
    columns = zip(
        rows.texts("name"),
        rows.wholes("num_gpu"),
        rows.wholes("gpu_milli"),
        rows.texts("gpu_spec"),
        rows.texts("qos"),
        rows.numbers("creation_time"),
        rows.known("deletion_time"),
        rows.known("scheduled_time"),
        strict=True,
    )
    jobs, left_out = list[Job](), Counter[str]()
    for pod, chips, milli, spec, qos, created, deleted, scheduled in columns:
        if not chips:
            left_out["no GPU"] += 1
        elif scheduled is None:
            left_out["never scheduled"] += 1
        elif deleted is None or deleted <= scheduled:
            left_out["no run time"] += 1
        else:
            job = Job(pod, "unknown", "default", created, deleted - scheduled, chips, None, _PRIORITY.get(qos, 0))
            job.wait, job.tags = max(0.0, scheduled - created), _tags(milli, spec)
            jobs.append(job)
    return make_trace(name, jobs, "openb", left_out, accelerator)


def _tags(milli: int, spec: str) -> Tags:
    share: Tags = (("gpu_milli", str(milli)),) if milli < 1000 else ()
    return (*share, ("gpu_spec", spec)) if spec else share
