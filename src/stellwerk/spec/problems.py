"""What is wrong with a declaration, as data: where, which code, what was found, how to mend it.

Two levels: a `Flaw` knows only its path inside the declaration (validators raise it, they know no file);
a `Problem` is a flaw with its place in a file, and is what users see.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Path = tuple[str | int, ...]
Severity = Literal["error", "warning"]

_LONGEST_ECHO = 60
_T = TypeVar("_T")


@dataclass(frozen=True)
class Problem:
    """One finding in a declaration. `line` and `column` count from 1; None when the source has no lines."""

    file: str
    line: int | None
    column: int | None
    severity: Severity
    code: str
    message: str
    mend: str | None = None

    def render(self) -> str:
        """`FILE:LINE:COLUMN: error[CODE]: message; mend` on one line."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        mend = f"; {self.mend}" if self.mend else ""
        return printable(f"{place}: {self.severity}[{self.code}]: {self.message}{mend}")


class SpecError(Exception):
    """A declaration that cannot be used; `problems` holds everything that was found, in order of place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the problems; there is at least one error among them."""
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(problem.render() for problem in self.problems))

    def __reduce__(self) -> tuple[type[SpecError], tuple[list[Problem]]]:
        """Pickle by problems, so that the error crosses process borders whole."""
        return type(self), (self.problems,)


class Flaw(ValueError):
    """One finding without a file: a path into the declaration, and an offset when the value is a short form.

    `of_key` marks flaws whose place is the key at the end of the path and not its value.
    """

    def __init__(
        self,
        code: str,
        message: str,
        mend: str | None = None,
        *,
        path: Path = (),
        offset: int | None = None,
        of_key: bool = False,
    ) -> None:
        """Describe the finding: `code` for programs, `message` for people, `mend` what to write instead."""
        self.code = code
        self.message = message
        self.mend = mend
        self.path = path
        self.offset = offset
        self.of_key = of_key
        super().__init__(f"{message}; {mend}" if mend else message)

    def under(self, *prefix: str | int) -> Flaw:
        """The same flaw, seen from further up."""
        return Flaw(
            self.code,
            self.message,
            self.mend,
            path=prefix + self.path,
            offset=self.offset,
            of_key=self.of_key,
        )


class Flaws(ValueError):
    """Several flaws found by one validator."""

    def __init__(self, flaws: Sequence[Flaw]) -> None:
        """Keep the flaws; there is at least one."""
        self.flaws = tuple(flaws)
        super().__init__("; ".join(str(flaw) for flaw in flaws))


class Collected:
    """Goes on after a flaw, so that one reading finds all of them."""

    def __init__(self) -> None:
        """Begin without flaws."""
        self.flaws: list[Flaw] = []

    def take(self, make: Callable[[], _T], *path: str | int) -> _T | None:
        """What `make` returns, or None after noting its flaws under `path`."""
        try:
            return make()
        except Flaws as several:
            self.flaws += [flaw.under(*path) for flaw in several.flaws]
        except Flaw as flaw:
            self.flaws.append(flaw.under(*path))
        return None

    def refuse(self) -> None:
        """Raise `Flaws` when there are any."""
        if self.flaws:
            raise Flaws(self.flaws)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like `word`, or None when none is near; case and `-`/`_` do not count."""
    by_shape = {_shape(candidate): candidate for candidate in known}
    found = difflib.get_close_matches(_shape(word), by_shape, n=1, cutoff=0.6)
    return by_shape[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?` or None when nothing is near."""
    found = nearest(word, known)
    return f"did you mean {found}?" if found else None


def listed(words: Iterable[object]) -> str:
    """Words as people list them: `a, b or c`."""
    texts = [str(word) for word in words]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}" if texts else "nothing"


def allowed(words: Sequence[object]) -> str:
    """`allowed are a, b or c`."""
    return f"allowed {'is' if len(words) == 1 else 'are'} {listed(words)}"


def shown(value: object) -> str:
    """A value as it may be echoed: quoted, printable (no terminal control characters), of bounded length."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    try:
        text = (
            json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else str(type(value))
        )
    except ValueError:
        return "a very large number"
    clean = printable(text)
    return clean if len(clean) <= _LONGEST_ECHO else f"{clean[:_LONGEST_ECHO]}..."


def printable(text: str) -> str:
    """A text without control characters, which a terminal would obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def dotted(path: Path) -> str:
    """A path as people write it: `options[0].topology`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _shape(word: str) -> str:
    return word.lower().replace("-", "_").replace(" ", "_")
