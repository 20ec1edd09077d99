"""The plots of a replay, and of several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stellwerk.simulation.outcome import USES, Outcome, busy_share
from stellwerk.simulation.report.svg import COLOURS, TOP, Plot, log_time_ticks, steps, time_ticks
from stellwerk.simulation.world import Span

_POINTS = 400
_ROWS = 64
_BOXES = 6000
_USE_COLOURS = dict(zip(USES, ("#3d8f5a", "#b8963e", "#b9c0c8", "#b5442e", "#6f8fc0"), strict=True))
Named = Sequence[tuple[str, Outcome]]


def utilization(runs: Named) -> str:
    """The busy share of all chips over time, with the limit for the arrival window of the first."""
    plot = Plot("Busy share of all chips", y_label="share")
    end = max((outcome.ended for _, outcome in runs), default=0.0) or 1.0
    ticks, unit = time_ticks(end)
    plot.x_label = f"time since the first submit ({unit})"
    x, y = plot.x(0, end), plot.y(0, 1)
    plot.x_ticks(x, ticks)
    plot.y_ticks(y, [(tick / 5, f"{tick * 20} %") for tick in range(6)])
    for (name, outcome), colour in zip(runs, _colours(runs), strict=True):
        plot.line([(x(at), y(share)) for at, share in busy_share(outcome)], colour, name=name)
    first = runs[0][1] if runs else None
    if first is not None and first.limits is not None and first.window > 0:
        level = y(first.limits.utilization)
        plot.line(
            [(x(0), level), (x(first.window), level)],
            "#888",
            dash="5 4",
            name="limit of the mean until the last submit",
        )
    return plot.render()


def waits(runs: Named) -> str:
    """How many workloads waited at most so long."""
    return _shares(runs, "Time from submit to start", lambda outcome: outcome.waits)


def completions(runs: Named) -> str:
    """How many workloads were done so soon."""
    return _shares(runs, "Time from submit to end", lambda outcome: outcome.completions)


def _shares(runs: Named, title: str, values: Callable[[Outcome], list[float]]) -> str:
    plot = Plot(title, "at most (logarithmic)", "share of workloads")
    sorts = [sorted(values(outcome)) for _, outcome in runs]
    high = max((ordered[-1] for ordered in sorts if ordered), default=1.0)
    x, y = plot.x(1.0, max(60.0, high), log=True), plot.y(0, 1)
    plot.x_ticks(x, log_time_ticks(1.0, max(60.0, high)))
    plot.y_ticks(y, [(tick / 5, f"{tick * 20} %") for tick in range(6)])
    for (name, _), ordered, colour in zip(runs, sorts, _colours(runs), strict=True):
        plot.line([(x(value), y(share)) for value, share in _thinned(ordered)], colour, name=name)
    return plot.render()


def _thinned(ordered: Sequence[float]) -> list[tuple[float, float]]:
    count = len(ordered)
    places = range(0, count, max(1, count // _POINTS))
    points = [(ordered[index], (index + 1) / count) for index in places]
    return [*points, (ordered[-1], 1.0)] if count else []


def cost(runs: Named) -> str:
    """What the units of every pool were, in money where prices are known, else in unit-hours."""
    rows = [(f"{name} {pool.name}".strip(), outcome, pool) for name, outcome in runs for pool in outcome.pools]
    costs = [outcome.cost_of(pool) for _, outcome, pool in rows]
    priced = None not in costs
    bars = [
        (name, _parts(outcome, pool.name, money if priced else None))
        for (name, outcome, pool), money in zip(rows, costs, strict=True)
    ]
    title, height = "Cost by state" if priced else "Unit-hours by state", 90.0 + 30 * len(bars)
    plot = Plot(title, height=height, left=min(300.0, 30.0 + 7 * max((len(name) for name, _ in bars), default=4)))
    plot.x_label = "US dollars" if priced else "unit-hours"
    high = max((sum(parts.values()) for _, parts in bars), default=0.0) or 1.0
    x = plot.x(0, high)
    plot.x_ticks(x, [(tick, f"{tick:,.10g}") for tick in steps(high)])
    for row, (name, parts) in enumerate(bars):
        at, top = 0.0, TOP + 6 + 30 * row
        plot.text(plot.left - 6, top + 14, name, anchor="end")
        for use, amount in parts.items():
            if amount > 0:
                plot.box(x(at), top, x(at + amount) - x(at), 20, _USE_COLOURS[use], f"{use}: {amount:,.2f}")
            at += amount
    plot.legend = list(_USE_COLOURS.items())
    return plot.render()


def _parts(outcome: Outcome, pool: str, money: dict[str, float] | None) -> dict[str, float]:
    return money if money is not None else {use: seconds / 3600 for use, seconds in outcome.uses[pool].items()}


def units(outcome: Outcome) -> str:
    """A Gantt of units: who held them when; at most the first 64."""
    names = list(dict.fromkeys(unit.unit for unit in outcome.units))
    shown = {name: row for row, name in enumerate(names[:_ROWS])}
    more = f" (the first {len(shown)} of {len(names)})" if len(names) > len(shown) else ""
    height = max(8.0, min(18.0, 900.0 / max(1, len(shown))))
    plot = Plot(f"Units{more}", height=100 + height * len(shown))
    plot.left = min(220.0, 30.0 + 7 * max((len(name) for name in shown), default=4))
    end = outcome.ended or 1.0
    ticks, unit = time_ticks(end)
    plot.x_label, x = f"time since the first submit ({unit})", plot.x(0, end)
    plot.x_ticks(x, ticks)
    for name, row in shown.items():
        if height >= 11 or row % 4 == 0:
            plot.text(plot.left - 6, TOP + height * (row + 0.8), name, anchor="end")
    held = [span for span in outcome.spans if any(grant.unit in shown for grant in span.grants)]
    if sum(len(span.grants) for span in held) <= _BOXES:
        _exact(plot, held, shown, height, outcome)
    else:
        _by_share(plot, held, shown, height, outcome)
    for each in outcome.units:
        if each.unit in shown and each.phase == "broken":
            row, told = shown[each.unit], f"{each.unit}: broken"
            _box(plot, each.began, min(each.ended, end), row, height, "#b5442e", told, end)
    return plot.render()


def _exact(plot: Plot, spans: list[Span], shown: dict[str, int], height: float, outcome: Outcome) -> None:
    """A box for every grant; grants of one unit side by side share its row from top to bottom."""
    chips = {pool.name: pool.chips for pool in outcome.pools}
    places = dict[str, list[tuple[float, float, float]]]()
    for span in spans:
        key = span.job.demand.key
        colour = COLOURS[hash_of(key) % len(COLOURS)]
        told = f"{key}, attempt {span.number}: {span.chips} chips, {span.ended - span.began:,.0f} s"
        for grant in span.grants:
            if grant.unit in shown:
                share = grant.chips / chips[grant.pool]
                taken = [each for each in places.get(grant.unit, []) if each[0] > span.began]
                low = min(_room(taken, share), 1 - share)
                places[grant.unit] = [*taken, (span.ended, low, low + share)]
                _box(plot, span.began, span.ended, shown[grant.unit], height, colour, told, outcome.ended, low, share)


def _room(taken: list[tuple[float, float, float]], share: float) -> float:
    """The first gap of that height between the boxes that are drawn at this time."""
    low = 0.0
    for _, begins, ends in sorted(taken, key=lambda each: each[1]):
        if begins - low >= share - 1e-9:
            return low
        low = max(low, ends)
    return low


def _by_share(plot: Plot, spans: list[Span], shown: dict[str, int], height: float, outcome: Outcome) -> None:
    """Too many grants for a box each: how busy each unit was, in columns and four shades."""
    columns, end = 300, outcome.ended or 1.0
    width = end / columns
    chips = {pool.name: pool.chips for pool in outcome.pools}
    shares = {name: [0.0] * columns for name in shown}
    for span in spans:
        for grant in span.grants:
            if grant.unit in shown:
                _fill(shares[grant.unit], span.began / width, span.ended / width, grant.chips / chips[grant.pool])
    for name, row in shown.items():
        shades = [min(4, round(4 * share + 0.25 * (share > 0))) for share in shares[name]]
        start = 0
        for column in range(1, columns + 1):
            if column == columns or shades[column] != shades[start]:
                if shades[start]:
                    _shade(plot, start * width, column * width, row, height, shades[start] / 4, end)
                start = column


def _fill(columns: list[float], began: float, ended: float, share: float) -> None:
    last = len(columns) - 1
    for column in range(min(last, int(began)), min(last, int(ended)) + 1):
        columns[column] += share * max(0.0, min(ended, column + 1) - max(began, column))


def _shade(plot: Plot, began: float, ended: float, row: int, height: float, opacity: float, end: float) -> None:
    x = plot.x(0, end)
    plot.box(x(began), TOP + height * row + 0.5, x(ended) - x(began), height - 1, COLOURS[0], opacity=opacity)


def _box(
    plot: Plot, began: float, ended: float, row: int, height: float, colour: str, told: str, end: float,
    low: float = 0.0, share: float = 1.0,
) -> None:  # fmt: skip
    x, inner = plot.x(0, end), height - 1
    top = TOP + height * row + 0.5 + inner * low
    plot.box(x(began), top, max(0.3, x(ended) - x(began)), max(0.5, inner * share), colour, told)


def hash_of(text: str) -> int:
    """A number of a text that is the same in every process."""
    from zlib import crc32

    return crc32(text.encode())


def _colours(runs: Named) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(len(runs))]
