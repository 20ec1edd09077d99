"""From a document to a declaration of any one model: all that is wrong is found at once, with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from stellwerk.spec.document import Document
from stellwerk.spec.problems import Flaw, Flaws, Problem, SpecError, dotted, shown
from stellwerk.spec.wording import declared

_Model = TypeVar("_Model", bound=BaseModel)


def declaration(
    document: Document,
    model: type[_Model],
    what: str,
    context: Mapping[str, Any] | None = None,
    doubts: Callable[[_Model], Iterable[Flaw]] = lambda made: (),
) -> _Model:
    """The document as a declaration of this model. Raises `SpecError`.

    `what` names it in the plural, `context` is what its validators are told, and `doubts` finds what the model
    alone cannot know.
    """
    if document.root.entries is None:
        message = f"the document is {shown(document.root.plain())}; {what} are declared as a mapping"
        raise _refused(document, [Flaw("not-a-mapping", message)])
    try:
        made = declared(model, document.root.plain(), context)
    except Flaws as several:
        raise _refused(document, several.flaws) from None
    flaws = list(doubts(made))
    if flaws or document.problems:
        raise _refused(document, flaws)
    return made


def _refused(document: Document, flaws: Iterable[Flaw]) -> SpecError:
    """These flaws, and what was wrong when the document was read."""
    problems = [*document.problems, *(_problem(document, flaw) for flaw in flaws)]
    return SpecError(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))


def _problem(document: Document, flaw: Flaw) -> Problem:
    place = document.place(flaw.path, of_key=flaw.of_key, offset=flaw.offset)
    message = f"{dotted(flaw.path)}: {flaw.message}" if place.line is None and flaw.path else flaw.message
    return Problem(document.file, place.line, place.column, "error", flaw.code, message, flaw.mend)
