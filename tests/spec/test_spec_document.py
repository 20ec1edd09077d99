from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.spec.document import DEEPEST, LARGEST_FILE, parse, read
from stellwerk.spec.problems import Problem, SpecError


def refusals(data: bytes) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        document = parse(data, "f.yaml")
        raise SpecError(document.problems)
    return caught.value.problems


def place(data: bytes) -> tuple[str, int | None, int | None]:
    first = refusals(data)[0]
    return first.code, first.line, first.column


def test_scalars_follow_yaml_1_2() -> None:
    text = b"a: 1\nb: 0x1F\nc: 1.5\nd: yes\ne: true\nf: ~\ng: '1'\nh: 2026-01-01\ni: 0o17\nj: .inf\nk:\nl: 1:30\n"
    assert parse(text, "f").root.plain() == {
        "a": 1, "b": 31, "c": 1.5, "d": "yes", "e": True, "f": None, "g": "1", "h": "2026-01-01",
        "i": 15, "j": float("inf"), "k": None, "l": "1:30",
    }  # fmt: skip


def test_places_of_keys_and_values() -> None:
    document = parse(b"a:\n  - x: 'tpu-v6e:4x4'\n    y: 2\n", "f")
    assert (document.place(("a", 0, "x")).line, document.place(("a", 0, "x")).column) == (2, 8)
    assert document.place(("a", 0, "y"), of_key=True).column == 5
    assert document.place(("a", 0, "x"), offset=8).column == 17, "one more for the quote"
    assert document.place(("a", 0, "z", "deeper")).line == 2, "the nearest ancestor"
    assert document.has(("a", 0, "y"))
    assert not document.has(("a", 1))


def test_anchors_and_merges_expand() -> None:
    document = parse(b"base: &b {x: 1, y: 2}\nuse: *b\nmerged: {<<: *b, y: 3}\n", "f")
    assert document.root.plain()["use"] == {"x": 1, "y": 2}
    assert document.root.plain()["merged"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ("empty", 1, 1)),
        (b"# only a comment\n", ("empty", 1, 1)),
        (b"a: 1\nb: 2\na: 3\n", ("duplicate-key", 3, 1)),
        (b"a: 1\n---\nb: 2\n", ("several-documents", 2, 1)),
        (b"a: \xff\xfe\n", ("not-utf8", 1, 4)),
        (b"a: 1\nb: \xe9\n", ("not-utf8", 2, 4)),
        (b"a: !!python/object:os.system x\n", ("tag", 1, 4)),
        (b"a: !secret x\n", ("tag", 1, 4)),
        (b"a: *nobody\n", ("alias", 1, 4)),
        (b"a: &x [1, *x]\n", ("alias", 1, 11)),
        (b"a: [1, 2\nb: 3\n", ("yaml", 2, 2)),
        (b"a:\n\t- 1\n", ("yaml", 2, 1)),
        (b"a: 1\x07\n", ("yaml", 1, 5)),
        (b"? [a]\n: 1\n", ("key", 1, 3)),
        (b"a: " + b"9" * 5000, ("number", 1, 4)),
        (b"[" * (DEEPEST + 1), ("too-deep", 1, DEEPEST + 1)),
        (b"#" * (LARGEST_FILE + 1), ("too-large", 1, 1)),
    ],
)
def test_refusals_have_their_place(data: bytes, expected: tuple[str, int, int]) -> None:
    assert place(data) == expected


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert place("\n".join(lines).encode())[0] == "too-large"


def test_deep_aliases_are_refused() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, DEEPEST + 1)]
    assert place("\n".join(lines).encode())[0] == "too-deep"


def test_all_duplicates_are_found() -> None:
    assert [problem.line for problem in refusals(b"a: 1\na: 2\nb: {c: 1, c: 2}\n")] == [2, 3]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("a: 1\n")
    for path, code in (
        (tmp_path / "trian.yaml", "no-such-file"),
        (tmp_path, "not-a-file"),
        ("a\0b", "unreadable"),
    ):
        with pytest.raises(SpecError) as caught:
            read(path, "workload")
        assert caught.value.problems[0].code == code
        assert caught.value.problems[0].line is None
    with pytest.raises(SpecError, match=r"did you mean .*train\.yaml\?"):
        read(tmp_path / "trian.yaml", "workload")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SpecError, match="not a regular file"):
        read(tmp_path / "pipe", "workload")


def test_mappings_are_bounded_too() -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless
    for source, code in ((endless, "too-deep"), ({1: 2}, "key"), ({"a": object()}, "not-plain")):
        with pytest.raises(SpecError) as caught:
            read(source, "workload")  # type: ignore[arg-type]
        assert caught.value.problems[0].code == code


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_bytes_make_a_tree_or_problems_with_places(data: bytes) -> None:
    try:
        problems = parse(data, "f.yaml").problems
    except SpecError as error:
        problems = error.problems
        assert problems
    for problem in problems:
        assert problem.file == "f.yaml"
        assert problem.line is not None
        assert problem.line >= 1
        assert problem.column is not None
        assert problem.column >= 1
        assert "\n" not in problem.render()


@settings(deadline=None)
@given(st.text(alphabet="ab:-?[]{},&*!|>'\"%@`#~<= \n\t.019xe", max_size=120))
def test_yaml_like_text_makes_a_tree_or_problems(text: str) -> None:
    try:
        parse(text.encode(), "f.yaml").root.plain()
    except SpecError as error:
        assert error.problems
