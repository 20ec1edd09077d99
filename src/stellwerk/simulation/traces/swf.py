"""Standard Workload Format (Feitelson, Parallel Workloads Archive, version 2.2): `.swf` and `.swf.gz`.

A line is a job of 18 fields divided by spaces; -1 is unknown; lines that begin with `;` are the header. Made
of it:

* chips are the processors allocated (field 5), or requested (8) where that is unknown; duration is the run
  time (4); the estimate is the requested time (9); the recorded wait is field 3.
* user, queue and partition are numbers there: `user-62`, `queue-1`, or the queue's name where the header
  gives one (`; Queue: 1 batch`). A queue that is unknown is `default`.
* fields beyond 18 are an extension of MetaCentrum logs (machines, queue, request): the queue's name is taken
  from it where the number is unknown.

Jobs that never ran (run time 0 or unknown) or whose processors are unknown are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NoReturn

from stellwerk.simulation.traces.model import Job, Trace, make_trace
from stellwerk.simulation.traces.rows import LARGEST_NUMBER, refuse
from stellwerk.spec.problems import shown

_FIELDS = 18
_NAMES = ("job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time",
          "used memory", "requested processors", "requested time", "requested memory", "status", "user", "group",
          "executable", "queue", "partition", "preceding job", "think time")  # fmt: skip
_READ = (1, 2, 3, 4, 7, 8)
_QUEUE = re.compile(r";\s*Queue:\s*(\d+)\s+(\S+)")


def fits(text: str) -> bool:
    """Whether a text's first job line, or its header, is SWF's."""
    line = next((line for line in text[:65536].splitlines() if line.strip() and not line.startswith(";")), "")
    fields = line.split(None, _FIELDS)
    return (len(fields) >= _FIELDS and all(_is_number(field) for field in fields[:5])) or text.lstrip().startswith(";")


def read(file: str, text: str, name: str, accelerator: str | None) -> Trace:
    """The jobs of a log in SWF. Raises `SpecError` with the line and field of what cannot be read."""
    queues = {number: queue for number, queue in _QUEUE.findall(text)}
    users, named = dict[str, str](), dict[str, str]()
    jobs, left_out = list[Job](), Counter[str]()
    for index, line in enumerate(text.splitlines(), 1):
        fields = line.split(None, _FIELDS)
        if not fields or fields[0].startswith(";"):
            continue
        if len(fields) < _FIELDS:
            refuse(file, "row", f"this line has {len(fields)} fields; a job has {_FIELDS}", line=index, column=1)
        try:
            submit, wait, run = float(fields[1]), float(fields[2]), float(fields[3])
            allocated, requested, estimate = int(fields[4]), int(fields[7]), float(fields[8])
        except ValueError:
            _tell(file, index, line, fields)
        chips = allocated if allocated > 0 else requested
        if not (abs(submit) + abs(run) + abs(wait) + abs(estimate) <= LARGEST_NUMBER and chips <= LARGEST_NUMBER):
            _tell(file, index, line, fields)
        if run <= 0 or chips <= 0:
            left_out["no run time" if run <= 0 else "processors unknown"] += 1
            continue
        user, queue = fields[11], fields[14]
        if queue == "-1":
            queue = _beyond(fields)
        jobs.append(
            Job(
                fields[0],
                users.get(user) or users.setdefault(user, f"user-{user}" if user != "-1" else "unknown"),
                named.get(queue) or named.setdefault(queue, queues.get(queue) or _queue(queue)),
                submit,
                run,
                chips,
                estimate if estimate > 0 else None,
                wait=wait if wait >= 0 else None,
            )
        )
    return make_trace(name, jobs, "swf", left_out, accelerator)


def _queue(queue: str) -> str:
    return f"queue-{queue}" if queue.isdigit() else queue


def _beyond(fields: list[str]) -> str:
    more = fields[_FIELDS].split() if len(fields) > _FIELDS else []
    return more[1] if len(more) > 1 else "default"


def _tell(file: str, index: int, line: str, fields: list[str]) -> NoReturn:
    """Refuse the first field that is no number."""
    for field in _READ:
        if not _is_number(fields[field], whole=field in (4, 7)):
            starts = [match.start() for match in re.finditer(r"\S+", line)]
            wanted = "it must be a number of a sensible size"
            message = f"the {_NAMES[field]} (field {field + 1}) is {shown(fields[field])}; {wanted}"
            refuse(file, "wrong-type", message, "write -1 for what is unknown", index, starts[field] + 1)
    raise AssertionError(line)


def _is_number(text: str, whole: bool = False) -> bool:
    try:
        return abs((int if whole else float)(text)) <= LARGEST_NUMBER / 10
    except ValueError:
        return False
