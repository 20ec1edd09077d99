"""The files of `stellwerk size`: the fleet as one that can be used, all candidates, and the goal against the size."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stellwerk.simulation.goals import INF, Clause
from stellwerk.simulation.report.svg import COLOURS, Plot, steps, time_ticks
from stellwerk.simulation.sizing import Answer, Candidate, to_json, units_of

if TYPE_CHECKING:
    from stellwerk import spec


def write_sizes(answer: Answer, declared: spec.Fleet, source: Path, folder: Path) -> list[Path]:
    """Write all files into `folder`, which is made when it is missing; `source` is the fleet's file.

    Raises `OSError`. The fleet is written only when one was found.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "summary.json": json.dumps(to_json(answer), indent=2, ensure_ascii=False) + "\n",
        "candidates.csv": _candidates(answer),
        **{f"goal{number or ''}.svg": plot(answer, index) for index, number in enumerate(_numbers(answer))},
    }
    if answer.best is not None:
        texts["fleet.yaml"] = fleet_yaml(source.read_text(encoding="utf-8"), declared, answer.best)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def fleet_yaml(text: str, declared: spec.Fleet, candidate: Candidate) -> str:
    """A fleet file with a candidate's units; all else, comments too, stays as it was."""
    from ruamel.yaml import YAML

    yaml: Any = YAML()
    yaml.width, yaml.preserve_quotes = 4096, True
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    for entry, pool, count in zip(document["pools"], declared.pools, candidate.units, strict=True):
        wanted = units_of(pool, count)
        fixed = wanted["min"] == wanted["max"] and not wanted["buffer"]
        entry["units"] = count if fixed else {key: value for key, value in wanted.items() if value or key != "buffer"}
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def plot(answer: Answer, index: int) -> str:
    """A clause of the goal against the size of the fleets that were tried."""
    clause = answer.goal.clauses[index]
    points = [(_size(answer, each), each.values[index], each) for each in answer.tried]
    finite = [value for _, value, _ in points if value < INF]
    high, along = _top(clause, finite), max((size for size, _, _ in points), default=1.0) or 1.0
    drawn = Plot(str(clause), x_label=_x_label(answer))
    x, y = drawn.x(0, along), drawn.y(0, high)
    drawn.x_ticks(x, [(tick, f"{tick:,.10g}") for tick in steps(along)])
    ticks, drawn.y_label = _y_ticks(clause, high)
    drawn.y_ticks(y, ticks)
    shown = [(size, value, each) for size, value, each in sorted(points, key=lambda p: p[:2]) if value < INF]
    if len(answer.pools) == 1:
        drawn.line([(x(size), y(value)) for size, value, _ in shown], "#888")
    drawn.line([(x(0), y(clause.bound)), (x(along), y(clause.bound))], "#888", dash="5 4", name="goal")
    for size, value, each in shown:
        colour = COLOURS[2] if each.meets else COLOURS[1]
        drawn.box(x(size) - 3, y(value) - 3, 6, 6, colour, f"{_named(answer, each)}: {clause.show(value)}")
    drawn.legend += [("meets the goal", COLOURS[2]), ("misses it", COLOURS[1])]
    return drawn.render()


def _numbers(answer: Answer) -> Sequence[int]:
    """The numbers of the plots: none where there is one."""
    count = len(answer.goal.clauses)
    return [0] if count == 1 else range(1, count + 1)


def _candidates(answer: Answer) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [pool.name for pool in answer.pools]
    writer.writerow([*names, "chips", "price_per_hour", *(clause.title for clause in answer.goal.clauses), "met"])
    for each in answer.tried:
        values = ["" if value == INF else value for value in each.values]
        price = "" if each.price_per_hour is None else each.price_per_hour
        writer.writerow([*each.units, each.chips, price, *values, "yes" if each.meets else "no"])
    return out.getvalue()


def _size(answer: Answer, candidate: Candidate) -> float:
    if len(answer.pools) == 1:
        return float(candidate.units[0])
    return float(candidate.chips) if candidate.price_per_hour is None else candidate.price_per_hour


def _x_label(answer: Answer) -> str:
    if len(answer.pools) == 1:
        return f"units of {answer.pools[0].name}"
    return "chips" if answer.largest.price_per_hour is None else "US dollars per hour"


def _top(clause: Clause, values: Sequence[float]) -> float:
    """The upper end of a plot: all values, but the goal is not to be lost below them."""
    if clause.figure is None:
        return 1.0
    return min(max([clause.bound * 1.2, *values]), max(clause.bound * 50, min(values, default=0.0) * 2, 1.0)) or 1.0


def _y_ticks(clause: Clause, high: float) -> tuple[list[tuple[float, str]], str]:
    if clause.figure is None:
        return [(tick / 5, f"{tick * 20} %") for tick in range(6)], "share"
    ticks, unit = time_ticks(high)
    return ticks, unit


def _named(answer: Answer, candidate: Candidate) -> str:
    return ", ".join(f"{pool.name} {count}" for pool, count in zip(answer.pools, candidate.units, strict=True))
