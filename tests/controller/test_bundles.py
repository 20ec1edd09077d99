from __future__ import annotations

import os
import stat
from pathlib import Path

from pytest import fixture, mark, raises

from stellwerk.controller.bundles import BundleError, pack, prune


@fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib" / "__pycache__").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / "lib" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (folder / "lib" / "util.py").write_text("x = 1\n")
    (folder / "train.py").write_text("print()\n")
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_a_bundle_is_what_the_folder_was(code: Path, tmp_path: Path) -> None:
    bundle = pack(code, tmp_path / "bundles")
    assert _files(bundle) == {"lib/util.py", "train.py", "run.sh"}
    (code / "train.py").write_text("changed")
    assert (bundle / "train.py").read_text() == "print()\n"
    assert stat.S_IMODE((bundle / "run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((bundle / "train.py").stat().st_mode) == 0o600


def test_the_same_content_is_the_same_bundle(code: Path, tmp_path: Path) -> None:
    first = pack(code, tmp_path / "bundles")
    assert pack(code, tmp_path / "bundles") == first
    (code / "run.sh").chmod(0o644)
    second = pack(code, tmp_path / "bundles")
    (code / "lib").rename(code / "lab")
    third = pack(code, tmp_path / "bundles")
    assert len({first, second, third}) == 3
    assert {path.name for path in (tmp_path / "bundles").iterdir()} == {first.name, second.name, third.name}


def test_the_ignore_file_is_respected(code: Path, tmp_path: Path) -> None:
    (code / "data").mkdir()
    for name in ("data/big.bin", "notes.txt", "keep.txt", "lib/notes.txt"):
        (code / name).write_text("x")
    (code / ".stellwerkignore").write_text("# what stays here\ndata/\n*.txt\n!keep.txt\n/run.sh\n")
    bundle = pack(code, tmp_path / "bundles")
    assert _files(bundle) == {".stellwerkignore", "keep.txt", "lib/util.py", "train.py"}


def test_links_inside_travel_and_links_that_escape_are_refused(code: Path, tmp_path: Path) -> None:
    (code / "lib" / "again.py").symlink_to("../train.py")
    (code / "absolute.py").symlink_to(code / "train.py")
    bundle = pack(code, tmp_path / "bundles")
    assert (bundle / "lib" / "again.py").resolve() == bundle / "train.py"
    assert (bundle / "absolute.py").resolve() == bundle / "train.py"
    for target in ("../secret", "/etc/hostname"):
        (code / "escape").symlink_to(target)
        with raises(BundleError, match=r"escape -> .*; copy what it leads to"):
            pack(code, tmp_path / "bundles")
        (code / "escape").unlink()
    assert len(list((tmp_path / "bundles").iterdir())) == 1


def test_a_folder_that_is_too_large_is_refused_and_leaves_nothing(code: Path, tmp_path: Path) -> None:
    (code / "data.bin").write_bytes(bytes(3 * 2**20))
    with raises(BundleError, match=r"more than 2 MiB; name data and outputs in \.stellwerkignore"):
        pack(code, tmp_path / "bundles", limit=2 * 2**20)
    assert list((tmp_path / "bundles").iterdir()) == []


def test_the_state_folder_inside_and_special_files_do_not_travel(code: Path, tmp_path: Path) -> None:
    home = code / "state"
    (home / "bundles").mkdir(parents=True)
    (home / "log.db").write_text("x")
    os.mkfifo(code / "pipe")
    bundle = pack(code, home / "bundles", exclude=home)
    assert _files(bundle) == {"lib/util.py", "train.py", "run.sh"}


@mark.parametrize("name", ["missing", "train.py"])
def test_what_is_no_folder_is_refused(name: str, code: Path, tmp_path: Path) -> None:
    with raises(BundleError, match="is not a folder"):
        pack(code / name, tmp_path / "bundles")


def test_what_nobody_uses_is_pruned(code: Path, tmp_path: Path) -> None:
    kept = pack(code, tmp_path / "bundles")
    (code / "train.py").write_text("other")
    pack(code, tmp_path / "bundles")
    (tmp_path / "bundles" / ".new-left").mkdir()
    prune(tmp_path / "bundles", {kept.name})
    assert list((tmp_path / "bundles").iterdir()) == [kept]
    prune(tmp_path / "nothing", set())
