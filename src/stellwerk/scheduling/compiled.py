"""Records of a compiled module, made whole: what the codec has to know of their fields.

Compiled (`make compiled`), a class keeps of a field's type what one name can say: `float | None` becomes `type`. The
codec reads records by the types of their fields, so these are taken from the source, which lies beside the compiled
module. What is not compiled has them already.
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType


def is_compiled(module: ModuleType) -> bool:
    """Whether a module was compiled."""
    return not str(module.__file__).endswith(".py")


def complete(module: ModuleType) -> None:
    """Give the fields of a compiled module's records their types, and the records the mark of having no dictionary."""
    if not is_compiled(module):
        return
    source = Path(str(module.__file__)).with_name(f"{module.__name__.rpartition('.')[2]}.py").read_text("utf-8")
    for record in ast.parse(source).body:
        if isinstance(record, ast.ClassDef):
            kind = getattr(module, record.name)
            fields = kind.__dataclass_fields__
            kind.__slots__ = tuple(fields)
            for line in record.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    fields[line.target.id].type = ast.unparse(line.annotation)
