"""Reading one YAML document into a tree that knows the line and column of every key and value.

The tree is built from parser events, not by a YAML constructor: no object is ever made from a tag, duplicate
keys and places survive, and size, depth and what aliases expand to are bounded before anything is built.
Scalars follow the YAML 1.2 core schema (`yes` and `on` are text).
"""

from __future__ import annotations

import io
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml import events as yaml_events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from stellwerk.spec import problems
from stellwerk.spec.plain import is_list, is_mapping
from stellwerk.spec.problems import Problem, SpecError, nearest, printable, shown

LARGEST_FILE = 1 << 20
DEEPEST = 40
MOST_NODES = 100_000

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_PLAIN_TAGS = {None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


@dataclass(frozen=True)
class Place:
    """Where something starts, counted from 1; None for sources without lines."""

    line: int | None = None
    column: int | None = None

    def shifted(self, columns: int) -> Place:
        """The place some columns further right."""
        return self if self.column is None else Place(self.line, self.column + columns)


@dataclass
class Node:
    """A value of the tree: a scalar, or `entries` of a mapping, or `items` of a list.

    `text` is the place of a scalar's first character when its characters stand in the file as they are.
    `size` and `height` count the nodes below with every alias expanded.
    """

    place: Place
    value: Any = None
    text: Place | None = None
    entries: dict[str, tuple[Place, Node]] | None = None
    items: list[Node] | None = None
    size: int = 1
    height: int = 1

    def plain(self) -> Any:
        """The tree as dicts, lists and scalars."""
        if self.entries is not None:
            return {key: child.plain() for key, (_, child) in self.entries.items()}
        if self.items is not None:
            return [child.plain() for child in self.items]
        return self.value

    def grow(self, child: Node) -> None:
        """Account for a child that was added."""
        self.size += child.size
        self.height = max(self.height, child.height + 1)


@dataclass
class Document:
    """A document that was read: its name for messages, its tree, and what is wrong with it so far."""

    file: str
    root: Node
    path: Path | None = None
    problems: list[Problem] = field(default_factory=list[Problem])

    def place(self, path: problems.Path, *, of_key: bool = False, offset: int | None = None) -> Place:
        """The place of the value (or key) at `path`, or of its nearest ancestor that the file has."""
        node, found = self.root, self.root.place
        for part in path:
            key, child = _step(node, part)
            if child is None:
                break
            node, found = child, key if of_key and key else child.place
        else:
            if offset is not None and node.text is not None and not of_key:
                return node.text.shifted(offset)
        return found

    def has(self, path: problems.Path) -> bool:
        """Whether the document itself has a value at `path`."""
        node: Node | None = self.root
        for part in path:
            node = _step(node, part)[1] if node else None
        return node is not None


def _step(node: Node, part: str | int) -> tuple[Place | None, Node | None]:
    if isinstance(part, int):
        inside = node.items is not None and 0 <= part < len(node.items)
        return None, node.items[part] if inside and node.items else None
    return (node.entries or {}).get(part, (None, None))


def read(source: str | Path | Mapping[str, Any], what: str) -> Document:
    """Read a file, or take a mapping as it is. `what` names the source of a mapping. Raises `SpecError`."""
    if isinstance(source, Mapping):
        document = Document(what, Node(Place()))
        document.root = _of_python(source, document, 0)
        _refuse_if_broken(document)
        return document
    path = Path(source)
    return parse(_bytes_of(path, str(source)), str(source), path)


def parse(data: bytes, file: str, path: Path | None = None) -> Document:
    """Read one YAML document from bytes. Raises `SpecError` when nothing can be made of them."""
    if len(data) > LARGEST_FILE:
        raise _fatal(file, Place(1, 1), "too-large", f"the file is larger than {LARGEST_FILE >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise _fatal(file, Place(line, column), "not-utf8", "the file is not UTF-8 text", "save it as UTF-8") from None
    document = Document(file, Node(Place(1, 1)), path)
    _Builder(document).build(text)
    return document


def _bytes_of(path: Path, file: str) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _fatal(file, Place(), "not-a-file", "this is not a regular file")
        with path.open("rb") as stream:
            return stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise _fatal(file, Place(), "no-such-file", "there is no such file", _similar_file(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _fatal(file, Place(), "unreadable", f"the file cannot be read: {reason}") from None


def _similar_file(path: Path) -> str | None:
    try:
        found = nearest(path.name, [other.name for other in path.parent.iterdir()])
    except OSError:
        return None
    return f"did you mean {path.with_name(found)}?" if found else None


def _fatal(file: str, place: Place, code: str, message: str, mend: str | None = None) -> SpecError:
    return SpecError([Problem(file, place.line, place.column, "error", code, message, mend)])


def _refuse_if_broken(document: Document) -> None:
    if document.problems:
        raise SpecError(document.problems)


class _Builder:
    """Builds the tree of a document from parser events; goes on after what it can get over."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.events: Iterator[Any] = iter(())
        self.anchors: dict[str, Node | None] = {}
        self.nodes = 0

    def build(self, text: str) -> None:
        try:
            parser: Any = YAML(typ="safe", pure=True)
            self.events = iter(parser.parse(io.StringIO(text)))
            self._documents()
        except SpecError:
            raise
        except MarkedYAMLError as error:
            raise self._marked(error) from None
        except ReaderError as error:
            raise self._unreadable(text, error) from None
        except (
            YAMLError,
            ValueError,
            LookupError,
            AssertionError,
            AttributeError,
            TypeError,
            NotImplementedError,
        ):
            # A parser may stumble over bytes that nobody wrote on purpose; the input is wrong all the same.
            raise self._fatal(Place(1, 1), "yaml", "this is not valid YAML") from None

    def _documents(self) -> None:
        count = 0
        for event in self.events:
            if _is(event, yaml_events.DocumentStartEvent):
                count += 1
                if count > 1:
                    self._add(
                        _start(event),
                        "several-documents",
                        "a second document begins here; one file holds one",
                    )
                    return
            elif _is(event, yaml_events.NodeEvent):
                self.document.root = self._node(event, 1)
        if count == 0:
            raise self._fatal(Place(1, 1), "empty", "the file is empty")

    def _node(self, event: Any, depth: int) -> Node:
        place = _start(event)
        self._bound(place, depth, 1)
        if _is(event, yaml_events.AliasEvent):
            return self._alias(event, place, depth)
        tag = None if event.tag is None else str(event.tag)
        if tag not in _PLAIN_TAGS:
            self._add(place, "tag", f"the tag {shown(tag)} is not allowed; declarations are plain data")
        if event.anchor:
            self.anchors[event.anchor] = None
        if _is(event, yaml_events.ScalarEvent):
            node = self._scalar(event, place, tag)
        elif _is(event, yaml_events.SequenceStartEvent):
            node = self._sequence(place, depth)
        else:
            node = self._mapping(place, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, place: Place, depth: int) -> Node:
        node = self.anchors.get(event.anchor)
        if node is None:
            raise self._fatal(place, "alias", f"the alias *{event.anchor} stands for nothing complete before it")
        self._bound(place, depth + node.height - 1, node.size)
        return node

    def _scalar(self, event: Any, place: Place, tag: str | None) -> Node:
        text: str = event.value
        plain = event.style is None
        value: Any = text
        if plain and tag is None:
            try:
                value = _core_value(text)
            except ValueError:
                self._add(place, "number", "this number is too large")
        one_line = event.start_mark.line == event.end_mark.line
        width = event.end_mark.column - event.start_mark.column
        quotes = 1 if event.style in ("'", '"') else 0
        verbatim = one_line and width == len(text) + 2 * quotes
        return Node(place, value, text=place.shifted(quotes) if verbatim else None)

    def _sequence(self, place: Place, depth: int) -> Node:
        node = Node(place, items=[])
        for event in self.events:
            if _is(event, yaml_events.SequenceEndEvent):
                break
            child = self._node(event, depth + 1)
            assert node.items is not None
            node.items.append(child)
            node.grow(child)
        return node

    def _mapping(self, place: Place, depth: int) -> Node:
        node = Node(place, entries={})
        merged: list[Node] = []
        for event in self.events:
            if _is(event, yaml_events.MappingEndEvent):
                break
            key_place, key = _start(event), self._key(event, depth)
            child = self._node(next(self.events), depth + 1)
            if child.value is None and child.text == child.place:
                child.place = key_place  # nothing stands there, and the parser places it on some later line
            if key == "<<" and _is(event, yaml_events.ScalarEvent) and event.style is None:
                merged += child.items or [child]
            elif key is not None:
                self._enter(node, key, key_place, child)
        self._merge(node, merged)
        return node

    def _key(self, event: Any, depth: int) -> str | None:
        if _is(event, yaml_events.ScalarEvent) and event.value:
            self._node(event, depth + 1)
            return event.value
        node = self._node(event, depth + 1)
        if _is(event, yaml_events.AliasEvent) and isinstance(node.value, str):
            return node.value
        self._add(node.place, "key", "a key must be text")
        return None

    def _enter(self, node: Node, key: str, place: Place, child: Node) -> None:
        assert node.entries is not None
        if key in node.entries:
            first = node.entries[key][0]
            self._add(
                place,
                "duplicate-key",
                f"{shown(key)} is given twice; first on line {first.line}",
                "leave one of them out",
            )
            return
        node.entries[key] = (place, child)
        node.grow(child)

    def _merge(self, node: Node, merged: list[Node]) -> None:
        assert node.entries is not None
        for other in merged:
            if other.entries is None:
                self._add(other.place, "merge", "<< merges mappings, and this is none")
                continue
            for key, (place, child) in other.entries.items():
                if key not in node.entries:
                    node.entries[key] = (place, child)
                    node.grow(child)

    def _bound(self, place: Place, depth: int, size: int) -> None:
        self.nodes += size
        if depth > DEEPEST:
            raise self._fatal(place, "too-deep", f"this is nested more than {DEEPEST} levels deep")
        if self.nodes > MOST_NODES:
            raise self._fatal(place, "too-large", f"the file expands to more than {MOST_NODES} values")

    def _marked(self, error: Any) -> SpecError:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        details = " ".join(str(error.problem or error.context or "").split())
        return self._fatal(place, "yaml", f"this is not valid YAML: {printable(details)}")

    def _unreadable(self, text: str, error: Any) -> SpecError:
        position = error.position if isinstance(error.position, int) else 0
        before = text[:position]
        place = Place(before.count("\n") + 1, position - before.rfind("\n"))
        return self._fatal(place, "yaml", "this character is not allowed in YAML")

    def _fatal(self, place: Place, code: str, message: str) -> SpecError:
        self._add(place, code, message)
        return SpecError(self.document.problems)

    def _add(self, place: Place, code: str, message: str, mend: str | None = None) -> None:
        self.document.problems.append(
            Problem(self.document.file, place.line, place.column, "error", code, message, mend)
        )


def _is(event: Any, kind: type) -> bool:
    return isinstance(event, kind)


def _start(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _core_value(text: str) -> Any:
    """A plain scalar by the YAML 1.2 core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if _FLOAT.fullmatch(text):
        return float(text)
    if match := _SPECIAL.fullmatch(text):
        return float("nan") if match[1] is None else float(f"{match[1]}inf")
    return text


def _text_key(key: object, document: Document) -> str:
    if isinstance(key, str):
        return key
    raise _fatal(document.file, Place(), "key", f"{shown(key)} is not a key; keys are text")


def _of_python(value: object, document: Document, depth: int) -> Node:
    """A tree of plain Python data, under the same bounds as a file."""
    node = Node(Place())
    if depth > DEEPEST:
        raise _fatal(document.file, Place(), "too-deep", f"this is nested more than {DEEPEST} levels deep")
    if is_mapping(value):
        node.entries = {}
        for key, child in value.items():
            node.entries[_text_key(key, document)] = (Place(), _of_python(child, document, depth + 1))
            node.grow(node.entries[key][1])
    elif is_list(value):
        node.items = [_of_python(child, document, depth + 1) for child in value]
        for child in node.items:
            node.grow(child)
    elif isinstance(value, Path):
        node.value = str(value)
    elif value is None or isinstance(value, str | bool | int | float):
        node.value = value
    else:
        raise _fatal(document.file, Place(), "not-plain", f"a {type(value).__name__} is not plain data")
    if node.size > MOST_NODES:
        raise _fatal(document.file, Place(), "too-large", f"this holds more than {MOST_NODES} values")
    return node
