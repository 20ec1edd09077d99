"""The project itself: what importing costs, what the README promises, what the lock and the licences hold."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import stellwerk

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text()

# Words that a licence's name or classifier must contain, and those that it must not.
ALLOWED = re.compile(
    r"\b(mit|apache|bsd|0bsd|isc|zlib|cc0|psf|python software foundation|mpl|mozilla public|unlicense)\b", re.IGNORECASE
)
REFUSED = re.compile(r"\b(a?gpl|lgpl|sspl|busl|proprietary|non-?commercial)\b", re.IGNORECASE)


def locked() -> dict[str, str]:
    """Name and version of every locked package that this platform and Python install."""
    found = {}
    for name, version, marker in re.findall(r"^([\w.-]+)==(\S+)(?: ; ([^\\\n]+))?", LOCK, re.MULTILINE):
        if "win32" not in marker or "!=" in marker:
            found[name] = version
    return found


def licence(package: str) -> str:
    """All that a package says about its licence in short; the full text where it puts that into the field."""
    about = metadata.metadata(package)
    short = [about.get("License-Expression"), (about.get("License") or "").strip()[:2000]]
    classifiers = [line for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    return "; ".join(part for part in (*short, *classifiers) if part)


def imported_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after running `code`."""
    script = f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_stellwerk_imports_no_heavy_library() -> None:
    heavy = {"ray", "jax", "pydantic", "fastapi", "sqlalchemy", "numpy", "typer", "rich", "httpx", "http"}
    assert not imported_by("import stellwerk") & heavy


def test_current_outside_a_workload_imports_neither_ray_nor_jax() -> None:
    assert not imported_by("import stellwerk; stellwerk.current()") & {"ray", "jax", "pydantic"}


def test_public_names_are_those_listed() -> None:
    assert stellwerk.__all__ == sorted(stellwerk.__all__)
    assert [name for name in stellwerk.__all__ if not hasattr(stellwerk, name)] == []
    assert set(stellwerk.__all__) == {
        "Context", "Handle", "Plan", "PlannedOption", "Workload", "__version__", "current", "plan", "run",
    }  # fmt: skip
    assert set(stellwerk.__all__) <= set(dir(stellwerk))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reserve'"):
        _ = stellwerk.reserve  # type: ignore[attr-defined]


def test_version_is_the_one_of_the_project() -> None:
    assert f'\nversion = "{stellwerk.__version__}"\n' in (ROOT / "pyproject.toml").read_text()


def test_lock_has_a_hash_for_every_package_and_no_place_to_get_it_from() -> None:
    assert len(locked()) > 50
    assert LOCK.count("==") >= len(locked())
    entries = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert not re.search(r"https?:|index-url|find-links|trusted-host|\bfile:|\.(?:org|com|net|dev)\b", LOCK)


@pytest.mark.parametrize("wanted", ["ray", "jax", "pytest", "hatchling", "editables", "ruff", "pyright"])
def test_lock_covers_all_extras_and_the_build(wanted: str) -> None:
    assert wanted in locked()


def test_licences_are_permissive() -> None:
    installed = {re.sub(r"[-_.]+", "-", name).lower() for name in metadata.packages_distributions()}
    installed |= {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower() for d in metadata.distributions()}
    packages = [name for name in locked() if re.sub(r"[-_.]+", "-", name).lower() in installed]
    assert len(packages) > 40
    told = {name: licence(name) for name in packages}
    assert {name: text for name, text in told.items() if not ALLOWED.search(text)} == {}
    assert {name: text[:200] for name, text in told.items() if REFUSED.search(text) and not ALLOWED.search(text)} == {}


def test_every_dependency_has_its_line_in_the_architecture() -> None:
    declared = metadata_of_project()
    table = (ROOT / "docs" / "architecture.md").read_text().partition("## Dependencies")[2].lower()
    assert [name for name in declared if name.lower() not in table] == []


def metadata_of_project() -> list[str]:
    """Names of all direct dependencies, those of extras included."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [re.match(r"[\w.-]+", line)[0] for group in groups for line in group]  # type: ignore[index]


def test_every_module_that_is_to_be_compiled_or_not_exists() -> None:
    import tomllib

    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    named = [*wheel["hooks"]["mypyc"]["include"], *wheel["hooks"]["mypyc"]["exclude"]]
    assert len(named) > 20
    assert [path for path in named if path.startswith("/") and not list(ROOT.glob(path[1:]))] == []


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_make_targets_that_the_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for file in documents() for word in re.findall(r"(?:`|\$ )make ([a-z]+)", file.read_text())}
    assert {"demo", "test", "setup"} <= named
    assert named <= targets


def test_commands_that_the_documents_name_exist() -> None:
    from stellwerk.cli.app import COMMANDS

    shown = r"(?:`|\$ (?:\.venv/bin/)?)stellwerk ([a-z]+)"
    named = {word for file in documents() for word in re.findall(shown, file.read_text())}
    assert named
    assert named <= set(COMMANDS)


def test_files_that_the_documents_link_to_exist() -> None:
    broken = []
    for file in documents():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text()):
            if "://" not in target and not (file.parent / target).exists():
                broken.append(f"{file.name}: {target}")
    assert broken == []


def test_the_whole_licence_is_there() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
