"""What a compiled module forgets of its records is taken from the source beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType

from stellwerk.scheduling.compiled import complete, is_compiled

SOURCE = """
class Record:
    \"\"\"Has two fields.\"\"\"
    name: str
    at: float | None = None
    parts: tuple[int, ...] = ()

    def method(self): ...

def function(): ...
"""


def forgetful(folder: Path) -> ModuleType:
    """A module as it is once compiled: of its record's fields only single names of types are known."""
    (folder / "records.py").write_text(SOURCE)
    record = dataclasses.make_dataclass("Record", [("name", str), ("at", type, None), ("parts", tuple, ())])
    module = ModuleType("somewhere.records")
    module.__file__, module.__dict__["Record"] = str(folder / "records.cpython-311-x86_64-linux-gnu.so"), record
    return module


def test_fields_get_their_types_back(tmp_path: Path) -> None:
    module = forgetful(tmp_path)
    assert is_compiled(module)
    complete(module)
    record = module.__dict__["Record"]
    assert [field.type for field in dataclasses.fields(record)] == ["str", "float | None", "tuple[int, ...]"]
    assert record.__slots__ == ("name", "at", "parts")


def test_what_is_not_compiled_is_left_alone(tmp_path: Path) -> None:
    module = forgetful(tmp_path)
    module.__file__ = str(tmp_path / "records.py")
    complete(module)
    record = module.__dict__["Record"]
    assert not is_compiled(module)
    assert [field.type for field in dataclasses.fields(record)] == [str, type, tuple]
    assert not hasattr(record, "__slots__")
