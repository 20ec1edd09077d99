"""Plots as SVG, written by hand: a frame with two axes, and lines, bars and boxes in it.

A plotting library would be the largest dependency of the project for five plots. An SVG of this kind is text, small,
sharp at every size, and readable in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 68, 16, 40, 48
COLOURS = ("#3b6fb6", "#d1602e", "#3d8f5a", "#8a5aa8", "#b8963e", "#4aa3b5", "#a34a6a", "#6b6b6b")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.t{font-size:14px;font-weight:600}"
    ".g{stroke:#8884;stroke-width:1}.a{stroke:#888;stroke-width:1}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places: linear, or by the logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value, kept within the frame."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        at = math.log(max(value, self.low)) if self.log else value
        share = (at - low) / (high - low) if high > low else 0.0
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


@dataclass
class Plot:
    """A frame with a title and two axes; what is drawn into it is kept as text until `render`."""

    title: str
    x_label: str = ""
    y_label: str = ""
    height: float = HEIGHT
    left: float = LEFT
    body: list[str] = field(default_factory=list[str])
    legend: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def right(self) -> float:
        """The right edge of the frame."""
        return WIDTH - RIGHT

    @property
    def bottom(self) -> float:
        """The lower edge of the frame."""
        return self.height - BOTTOM

    def x(self, low: float, high: float, log: bool = False) -> Scale:
        """A scale along the lower edge."""
        return Scale(low, high, self.left, self.right, log)

    def y(self, low: float, high: float) -> Scale:
        """A scale along the left edge."""
        return Scale(low, high, self.bottom, TOP)

    def x_ticks(self, scale: Scale, ticks: Iterable[tuple[float, str]]) -> None:
        """Marks below the frame."""
        for value, text in ticks:
            at = scale(value)
            self.body.append(f'<path class="g" d="M{at:.1f} {TOP}V{self.bottom:g}"/>')
            self.text(at, self.bottom + 16, text, anchor="middle")

    def y_ticks(self, scale: Scale, ticks: Iterable[tuple[float, str]]) -> None:
        """Marks left of the frame."""
        for value, text in ticks:
            at = scale(value)
            self.body.append(f'<path class="g" d="M{self.left:g} {at:.1f}H{self.right:g}"/>')
            self.text(self.left - 6, at + 4, text, anchor="end")

    def line(self, points: Sequence[tuple[float, float]], colour: str, dash: str = "", name: str = "") -> None:
        """A line through points that are places already."""
        if points:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            self.body.append(f'<path fill="none" stroke="{colour}" stroke-width="1.5"{dashed} d="{path}"/>')
        if name:
            self.legend.append((name, colour))

    def box(
        self, x: float, y: float, width: float, height: float, colour: str, told: str = "", opacity: float = 1
    ) -> None:
        """A filled rectangle, with words that show when it is pointed at."""
        faint = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
        shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{faint}'
        self.body.append(f"{shape}><title>{escape(told)}</title></rect>" if told else f"{shape}/>")

    def text(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> None:
        """Words at a place."""
        named = f' class="{kind}"' if kind else ""
        self.body.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>')

    def render(self) -> str:
        """The whole SVG."""
        line = f"M{self.left:g} {TOP}V{self.bottom:g}H{self.right:g}"
        frame = f'<path class="a" fill="none" d="{line}"/>'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" role="img" '
            f'aria-label="{escape(self.title, quote=True)}"><style>{_STYLE}</style>'
        )
        middle = (self.left + self.right) / 2
        words = [
            f'<text class="t" x="{self.left:g}" y="20">{escape(self.title)}</text>',
            f'<text x="{middle:g}" y="{self.height - 8:g}" text-anchor="middle">{escape(self.x_label)}</text>',
            f'<text x="14" y="{(TOP + self.bottom) / 2:g}" text-anchor="middle" '
            f'transform="rotate(-90 14 {(TOP + self.bottom) / 2:g})">{escape(self.y_label)}</text>',
        ]
        return "\n".join([head, *self.body, frame, *words, *self._legend(), "</svg>"])

    def _legend(self) -> list[str]:
        parts, at = list[str](), self.right
        for name, colour in reversed(self.legend):
            at -= 7 * len(name) + 22
            parts.append(f'<rect x="{at:g}" y="11" width="10" height="10" fill="{colour}"/>')
            parts.append(f'<text x="{at + 14:g}" y="20">{escape(name)}</text>')
        return parts


def steps(high: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to `high`, about `count` of them."""
    if high <= 0:
        return [0.0]
    raw = high / count
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw)
    return [index * step for index in range(int(high / step + 1e-9) + 1)]


def time_ticks(high: float) -> tuple[list[tuple[float, str]], str]:
    """Round times from 0 to `high` seconds and the unit that they are in."""
    size, unit = next(((size, unit) for size, unit in _UNITS if high >= 2 * size), _UNITS[-1])
    return [(at * size, f"{at:g}") for at in steps(high / size, 8)], unit


def log_time_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Times that people know, within a range."""
    known = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (21600, "6 h"), (86400, "1 d"),
             (604800, "7 d"), (2592000, "30 d"), (31536000, "1 y"))  # fmt: skip
    return [(at, text) for at, text in known if low <= at <= high]
