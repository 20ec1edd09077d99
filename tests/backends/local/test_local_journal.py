"""A journal survives every crash: whole records stay, half-written ones never were."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backends.local.journal import Journal, JournalReader, ended, read

KINDS = st.sampled_from(["began", "ready", "started", "checkpoint", "ended"])
SETTINGS = settings(deadline=None, max_examples=30)


def _write(path: Path, kinds: list[str]) -> None:
    journal = Journal(path)
    for kind in kinds:
        journal.append(kind, text="a\nb")
    journal.close()


@SETTINGS
@given(st.lists(KINDS, max_size=6), st.lists(KINDS, max_size=6), st.integers(0, 2000))
def test_a_torn_tail_is_cut_off_and_numbers_go_on(before: list[str], after: list[str], cut: int):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        _write(path, before)
        raw = path.read_bytes()[:cut]
        path.write_bytes(raw)
        kept = raw.count(b"\n")
        _write(path, after)
        records = read(path)
        assert [record["kind"] for record in records] == before[:kept] + after
        assert [record["seq"] for record in records] == list(range(1, len(records) + 1))


@SETTINGS
@given(st.lists(KINDS, min_size=1, max_size=6), st.lists(st.integers(1, 200), min_size=1, max_size=9))
def test_a_reader_gets_every_record_once(kinds: list[str], steps: list[int]):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        _write(path, kinds)
        raw, live = path.read_bytes(), Path(folder) / "live.jsonl"
        reader, found, at = JournalReader(live), [], 0
        for step in itertools.cycle(steps):
            found += reader.read()
            if at >= len(raw):
                break
            with live.open("ab") as file:
                file.write(raw[at : at + step])
            at += step
        assert [record["kind"] for record in found] == kinds


def test_the_end_is_found(tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    assert ended(read(path)) is None
    _write(path, ["began", "ended"])
    end = ended(read(path))
    assert end is not None
    assert end["seq"] == 2
