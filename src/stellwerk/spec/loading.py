"""From a file or mapping to a `Workload` or `Fleet`; all that is wrong is found at once, with its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from stellwerk.spec import workload as workloads
from stellwerk.spec.document import Document, Node, read
from stellwerk.spec.plain import is_mapping
from stellwerk.spec.problems import Flaw, Problem, Severity, SpecError, dotted, printable, shown
from stellwerk.spec.problems import Path as Keys
from stellwerk.spec.values import sanitised
from stellwerk.spec.wording import flaws_of
from stellwerk.spec.workload import Workload

if TYPE_CHECKING:
    from stellwerk.spec.fleet import Fleet

Source = str | Path | Mapping[str, Any]
_Model = TypeVar("_Model", bound=BaseModel)
_FLEET_KEYS = {"pools", "queues", "accelerators", "prices"}


def load_workload(
    source: Source | Workload,
    *,
    overrides: Mapping[str, Any] | None = None,
    extra_accelerators: Iterable[str] = frozenset(),
) -> Workload:
    """Read a workload from a file's path or a mapping.

    `overrides` replace top-level keys, as `--name`, `--queue` and `--accelerator` (a short form, or a list of
    them) do; `extra_accelerators` are names that only the fleet declares. Raises `SpecError`
    with all problems found.
    """
    document = read(describe(source) if isinstance(source, Workload) else source, "workload")
    _expect(document, "workload")
    return _workload(document, overrides or {}, extra_accelerators)


def load_fleet(source: Source | Fleet) -> Fleet:
    """Read a fleet from a file's path or a mapping. Raises `SpecError` with all problems found."""
    from stellwerk.spec.fleet import Fleet  # a workload alone should not pay for it

    document = read(source.model_dump(mode="json") if isinstance(source, Fleet) else source, "fleet")
    _expect(document, "fleet")
    return _fleet(document)


def check(paths: Sequence[Path | str]) -> list[Problem]:
    """All errors and warnings of declarations; what each file declares is told from its content."""
    found: list[Problem] = []
    documents = [document for path in paths if (document := _read_into(path, found))]
    fleet_files = [document for document in documents if _declares(document.root) == "fleet"]
    extra: set[str] = set()
    for document in fleet_files:
        fleet = _into(found, lambda document=document: (_expect(document, "fleet"), _fleet(document))[1])
        extra |= set(fleet.accelerators) if fleet else set()
    for document in documents:
        if document not in fleet_files:
            _into(
                found,
                lambda document=document: (_expect(document, "workload"), _workload(document, {}, extra))[1],
            )
    order = {str(path): index for index, path in enumerate(paths)}
    return sorted(found, key=lambda problem: (order.get(problem.file, -1), *_by_place(problem)))


def describe(workload: Workload) -> dict[str, Any]:
    """The workload as plain data, which `load_workload` reads back to an equal workload."""
    return workload.model_dump(mode="json")


def _read_into(path: Path | str, found: list[Problem]) -> Document | None:
    try:
        return read(path, "")
    except SpecError as error:
        found += error.problems
        return None


def _into(found: list[Problem], load: Any) -> Any:
    try:
        loaded = load()
    except SpecError as error:
        found += error.problems
        return None
    found += loaded.warnings
    return loaded


def _declares(root: Node) -> str:
    keys = set(root.entries or {})
    if "apiVersion" in keys:
        return "manifest"
    return "fleet" if keys & _FLEET_KEYS and "kind" not in keys else "workload"


def _expect(document: Document, wanted: str) -> None:
    """Refuse what is not a mapping, and what declares something else than is wanted."""
    root, declared = document.root, _declares(document.root)
    if declared == "manifest":
        kind = root.entries["kind"][1].value if root.entries and "kind" in root.entries else None
        what = f"a Kubernetes manifest of kind {shown(kind)}" if kind else "a Kubernetes manifest"
        message = f"this is {what}; read today are workloads and fleets of Stellwerk"
        raise SpecError([_problem(document, Flaw("kind-unsupported", message, path=("apiVersion",), of_key=True))])
    if root.entries is None:
        found = "empty" if root.value is None and root.items is None else shown(root.plain())
        raise SpecError(
            [
                *document.problems,
                _problem(document, Flaw("not-a-mapping", f"the document is {found}; a {wanted} is a mapping")),
            ]
        )
    if declared != wanted:
        key = next((key for key in root.entries if key in _FLEET_KEYS), None)
        path = (key,) if key else ()
        flaw = Flaw(
            f"not-a-{wanted}",
            f"this declares a {declared}; here a {wanted} is expected",
            path=path,
            of_key=True,
        )
        raise SpecError([_problem(document, flaw)])


def _workload(document: Document, overrides: Mapping[str, Any], extra_accelerators: Iterable[str]) -> Workload:
    data = _overridden(document, document.root.plain(), overrides)
    folder = document.path.parent if document.path else Path()
    stem = sanitised(document.path.stem) if document.path else ""
    data.setdefault("name", stem or "workload")
    missing = _settle_folders(data, folder)
    context = {"extra_accelerators": frozenset(name.lower() for name in extra_accelerators)}
    workload = _validated(document, Workload, data, context, missing if document.path else [], overrides)
    warnings = [_problem(document, flaw, "warning", overrides) for flaw in workloads.doubts(workload)]
    vars(workload)["warnings"] = tuple(warnings)
    return workload


def _fleet(document: Document) -> Fleet:
    from stellwerk.spec.fleet import Fleet, doubts

    fleet = _validated(document, Fleet, document.root.plain(), {}, [], {})
    vars(fleet)["warnings"] = tuple(_problem(document, flaw, "warning") for flaw in doubts(fleet))
    return fleet


def _validated(
    document: Document,
    model: type[_Model],
    data: Any,
    context: dict[str, Any],
    flaws: list[Flaw],
    overrides: Mapping[str, Any],
) -> _Model:
    loaded: _Model | None = None
    try:
        loaded = model.model_validate(data, context=context)
    except ValidationError as error:
        flaws = flaws + flaws_of(error, model)
    problems = document.problems + [
        _problem(document, flaw, "error", overrides) for flaw in flaws if not _is_echo(document, flaw)
    ]
    if loaded is None or problems:
        raise SpecError(sorted(dict.fromkeys(problems), key=_by_place))
    return loaded


def _overridden(document: Document, data: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in overrides.items() if value is not None}
    accelerator = given.pop("accelerator", None)
    if accelerator is None:
        return data | given
    if data.get("roles"):
        message = "one accelerator cannot stand for several roles"
        raise SpecError(
            [
                Problem(
                    "--accelerator",
                    None,
                    None,
                    "error",
                    "roles",
                    message,
                    f"change `options` in {document.file}",
                )
            ]
        )
    return data | given | {"options": [accelerator] if isinstance(accelerator, str) else list(accelerator)}


def _settle_folders(data: dict[str, Any], folder: Path) -> list[Flaw]:
    """Make working folders absolute, taken from the file's folder; report those that do not exist."""
    flaws = _settle_folder(data, folder, ("working_dir",))
    steps = data.get("steps")
    for name, step in steps.items() if is_mapping(steps) else ():
        if is_mapping(step) and "working_dir" in step:
            flaws += _settle_folder(cast(dict[str, Any], step), folder, ("steps", name, "working_dir"))
    return flaws


def _settle_folder(data: dict[str, Any], folder: Path, path: Keys) -> list[Flaw]:
    given = data.get("working_dir", ".")
    if not isinstance(given, str) or not given or "://" in given:
        return []
    settled = os.path.abspath(folder / given)
    data["working_dir"] = settled
    if os.path.isdir(settled):
        return []
    return [Flaw("no-such-folder", f"`working_dir` is {shown(given)}, and there is no such folder", path=path)]


def _is_echo(document: Document, flaw: Flaw) -> bool:
    """Whether a flaw is about a step's name that was taken from its key, where it is reported already."""
    return flaw.path[:1] == ("steps",) and flaw.path[2:] == ("name",) and not document.has(flaw.path)


def _problem(
    document: Document, flaw: Flaw, severity: Severity = "error", overrides: Mapping[str, Any] | None = None
) -> Problem:
    path, option = _as_written(document, flaw.path), _override_of(flaw.path, overrides or {})
    message, mend = printable(flaw.message), printable(flaw.mend) if flaw.mend else None
    if option is not None:
        return Problem(option, None, None, severity, flaw.code, message, mend)
    of_key = flaw.of_key or path != flaw.path == (*path, "name")
    place = document.place(path, of_key=of_key, offset=flaw.offset)
    if place.line is None and path:
        message = f"{printable(dotted(path))}: {message}"
    return Problem(document.file, place.line, place.column, severity, flaw.code, message, mend)


def _override_of(path: Keys, overrides: Mapping[str, Any]) -> str | None:
    """The command line option that a flaw is about, if any."""
    key = (
        "accelerator"
        if path[:1] == ("options",) and overrides.get("accelerator") is not None
        else path[0]
        if path
        else None
    )
    return f"--{str(key).replace('_', '-')}" if key is not None and overrides.get(str(key)) is not None else None


def _as_written(document: Document, path: Keys) -> Keys:
    """Hardware that a role carried itself was read as the first option; find it where it was written."""
    if path[:2] == ("options", 0) and len(path) > 2 and not document.has(("options",)):
        return ("roles", *path[2:])
    if path[:1] == ("queues",) and path[2:] == ("name",) and not document.has(path):
        return path[:2]
    return path


def _by_place(problem: Problem) -> tuple[int, int]:
    return problem.line or 0, problem.column or 0
