"""Traces: every format in its own syntax, seen from the content; what is wrong is told with its place."""

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.simulation.traces import FORMATS, Job, Trace, read
from stellwerk.simulation.traces.model import make_trace
from stellwerk.spec.problems import SpecError

PHILLY = """job_id,submit_time,num_gpu,duration,user,vc
7,100,8,3600,ann,vision
8,40,1,60.5,,speech
9,40,0,10,bob,speech
"""
PHILLY_DATES = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-02 00:00:30,66.0,2,132.0,c2
2017-10-01 23:59:00,5.0,1,5.0,c1
"""
SWF = """; Version: 2.2
; Queue:  1  batch
;
    1     50     5    600   16     -1    -1   -1   1200    -1  1   4   1   3  1 -1 -1 -1
    2     20    -1     60   -1     -1    -1    4     -1    -1 -1  -1   1  -1 -1 -1 -1 -1
    3     90    -1     -1    4     -1    -1   -1     -1    -1  5   4   1  -1  1 -1 -1 -1
    4     91    -1     10   -1     -1    -1   -1     -1    -1 -1   4   1  -1  1 -1 -1 -1
"""
SWF_LONG = (
    "0 1356990000 71 10 2 1 1024 2 86400 6871 1 62 1 1 -1 1 1 1 {12,12} q_1d 1:ppn=2\n"
    "1 1356990009 0 10 2 1 1024 2 86400 6871 1 62 1 1 3 1 1 1 {12,12} q_1d 1:ppn=2\n"
)
OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-a,6000,12288,1,460,V100M16|V100M32,LS,Running,10,500,15
pod-b,6000,12288,8,1000,,BE,Succeeded,0,100,0
pod-c,6000,12288,0,0,,BE,Succeeded,0,100,0
pod-d,6000,12288,1,1000,,BE,Pending,5,100,
pod-e,6000,12288,1,1000,,Burstable,Failed,5,7,7
"""
TABLE = """submit_s,duration_s,option,chips,accelerator,name,user,queue,estimate_s,priority,tag_team
10,60,tpu-v6e:4x4*2@spot,,,big,ann,research,120,high,blue
0,30,,4,H100,,,,,,
5,30,,2,,named,bob,,45,-7,
"""


def put(folder: Path, text: str | bytes, name: str = "trace.csv") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def refused(source: str) -> str:
    with pytest.raises(SpecError) as caught:
        read(source)
    (problem,) = caught.value.problems
    return problem.render().replace(source, "FILE")


def test_philly(tmp_path: Path):
    trace = read(put(tmp_path, PHILLY), accelerator="p100")
    assert (trace.name, trace.format, dict(trace.left_out)) == ("trace", "philly", {"no GPU": 1})
    assert trace.jobs == (
        Job("8", "unknown", "speech", 0.0, 60.5, 1, accelerator="p100"),
        Job("7", "ann", "vision", 60.0, 3600.0, 8, accelerator="p100"),
    )
    assert (trace.window, trace.chip_seconds) == (60.0, 28_860.5)


def test_philly_with_dates(tmp_path: Path):
    trace = read(put(tmp_path, PHILLY_DATES))
    assert [(job.name, job.queue, job.submit, job.chips) for job in trace.jobs] == [
        ("1", "c1", 0, 1),
        ("0", "c2", 90, 2),
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_swf(tmp_path: Path, packed: bool):
    data = gzip.compress(SWF.encode()) if packed else SWF.encode()
    trace = read(put(tmp_path, data, "any.name"))
    assert (trace.format, dict(trace.left_out)) == ("swf", {"no run time": 1, "processors unknown": 1})
    assert trace.jobs == (
        Job("2", "unknown", "default", 0.0, 60.0, 4),
        Job("1", "user-4", "batch", 30.0, 600.0, 16, 1200.0, wait=5.0),
    )


def test_swf_with_fields_beyond_the_standard(tmp_path: Path):
    jobs = read(put(tmp_path, SWF_LONG)).jobs
    assert [(job.queue, job.submit, job.estimate, job.wait) for job in jobs] == [
        ("q_1d", 0.0, 86400.0, 71.0),
        ("queue-3", 9.0, 86400.0, 0.0),
    ]


def test_swf_header_in_latin_1(tmp_path: Path):
    assert (
        len(
            read(
                put(
                    tmp_path,
                    "; Acknowledge: J\N{LATIN SMALL LETTER O WITH DIAERESIS}rg\n".encode("latin-1") + SWF.encode(),
                )
            ).jobs
        )
        == 2
    )


def test_openb(tmp_path: Path):
    trace = read(put(tmp_path, OPENB))
    assert dict(trace.left_out) == {"no GPU": 1, "never scheduled": 1, "no run time": 1}
    assert trace.jobs == (
        Job("pod-b", "unknown", "default", 0.0, 100.0, 8, None, -100, wait=0.0),
        Job(
            "pod-a", "unknown", "default", 10.0, 485.0, 1, None, 100, wait=5.0,
            tags=(("gpu_milli", "460"), ("gpu_spec", "V100M16|V100M32")),
        ),
    )  # fmt: skip


TABLE_JOBS = (
    Job("1", "unknown", "default", 0.0, 30.0, 4, accelerator="h100"),
    Job("named", "bob", "default", 5.0, 30.0, 2, 45.0, -7),
    Job("big", "ann", "research", 10.0, 60.0, 32, 120.0, 100, "tpu-v6e:4x4*2@spot", tags=(("team", "blue"),)),
)


def test_own_table(tmp_path: Path):
    trace = read(put(tmp_path, TABLE))
    assert (trace.format, trace.jobs) == ("table", TABLE_JOBS)


def test_own_table_in_parquet(tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    header, *rows = (line.split(",") for line in TABLE.splitlines())
    columns = {name: [row[index] or None for row in rows] for index, name in enumerate(header)}
    columns |= {name: [float(cell) for cell in columns[name]] for name in ("submit_s", "duration_s")}
    columns["chips"] = [None if cell is None else int(cell) for cell in columns["chips"]]
    path = tmp_path / "trace.parquet"
    parquet.write_table(arrow.table(columns), path)
    assert read(str(path)).jobs == TABLE_JOBS
    columns["submit_s"][1] = math.nan
    parquet.write_table(arrow.table(columns), path)
    assert (
        refused(str(path)) == 'FILE: error[wrong-value]: row 2: `submit_s` is "nan"; it must be finite and at most 1e15'
    )


def test_own_hardware_of_a_fleet(tmp_path: Path):
    source = put(tmp_path, "submit_s,duration_s,option\n0,1,mychip:8\n")
    assert read(source, extra_accelerators=["MyChip"]).jobs[0].chips == 8
    assert "FILE:2:5: error[" in refused(source)


def test_a_format_may_be_named(tmp_path: Path):
    source = put(tmp_path, PHILLY)
    assert read(f"{source}:philly") == read(source)
    assert refused(f"{source}:swf").startswith(f"{source}:1:1: error[row]: this line has 1 fields")
    assert refused(f"{source}:openb").startswith(f"{source}:1: error[wrong-format]")
    assert 'error[unknown-format]: "phily" is not a format of traces' in refused(f"{source}:phily")
    assert "did you mean philly?" in refused(f"{source}:phily")
    assert read(put(tmp_path, PHILLY, "a:swf")).format == "philly"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            PHILLY.replace("60.5", "1h"),
            'FILE:3:8: error[wrong-type]: `duration` is "1h"; it must be a number',
        ),
        (PHILLY.replace("60.5", "-1"), 'FILE:3:8: error[wrong-value]: `duration` is "-1"; it must be at least 0'),
        (PHILLY.replace("60.5", "1e999"), 'FILE:3:8: error[wrong-value]: `duration` is "1e999"; it must be finite'),
        (PHILLY.replace("\n7,", '\n\n"7\n",').replace("3600", "x"), "FILE:3: error[wrong-type]"),
        (PHILLY.replace(",bob,speech", ",bob"), "FILE:4:1: error[row]: this row has 5 cells, the header has 6"),
        (PHILLY.replace("user", "vc"), 'FILE:1: error[duplicate-key]: the column "vc" is there twice'),
        (PHILLY_DATES.replace("2017-10-01 23:59:00", "soon"), 'FILE:3:1: error[wrong-type]: `timestamp` is "soon"'),
        ("vc,node num\na,1\n", "FILE:1: error[unknown-format]"),
        ("", "FILE: error[empty]"),
        ("name,num_gpu,gpu_milli\na,1,1000\n", "FILE:1: error[missing-column]: this pod list has no creation_time"),
        (SWF.replace(" 600 ", " 6oo "), 'FILE:4:23: error[wrong-type]: the run time (field 4) is "6oo"'),
        (
            SWF.replace("  16 ", " " + "9" * 400 + " "),
            "FILE:4:28: error[wrong-type]: the allocated processors (field 5)",
        ),
        (PHILLY.replace(",8,3600", ",9" + "9" * 400 + ",3600"), "FILE:2:7: error[wrong-value]: `num_gpu`"),
        (PHILLY.replace(",8,3600", ",nan,3600"), "FILE:2:7: error[wrong-type]: `num_gpu`"),
        (PHILLY.replace(",3600,", ",nan,"), "FILE:2:9: error[wrong-value]: `duration`"),
        (SWF.replace(" 600 ", " inf "), 'FILE:4:23: error[wrong-type]: the run time (field 4) is "inf"'),
        (SWF.replace("  3  1 -1 -1 -1", ""), "FILE:4:1: error[row]: this line has 13 fields; a job has 18"),
        (TABLE.replace("estimate_s", "estimates"), 'FILE:1: error[unknown-column]: unknown column "estimates"'),
        (TABLE.replace("duration_s", "tag_x"), "FILE:1: error[missing-column]: the column `duration_s` is missing"),
        ("submit_s,duration_s\n0,1\n", "FILE:1: error[missing-column]: the column `option` or `chips` is missing"),
        (TABLE.replace("4x4*2", "4x5"), "FILE:2:7: error["),
        (TABLE.replace("spot,,", "spot,16,"), "FILE:2:26: error[chips]: `chips` is 16, but the option has 32"),
        (TABLE.replace(",4,H100", ",,H100"), "FILE:3:7: error[missing-key]: `chips` is empty"),
        (TABLE.replace("H100", "h1000"), "FILE:3:9: error["),
        (TABLE.replace("high", "higher"), "FILE:2:49: error[priority]"),
        (TABLE.replace(",2,,named", ",2.5,,named"), "FILE:4:7: error[wrong-type]: `chips`"),
        (b"\xff\xfe", "FILE:1: error[not-utf8]"),
        (b"SQLite format 3\0...", "FILE: error[unreadable]: the event log cannot be read"),
        (gzip.compress(SWF.encode())[:-9], "FILE: error[unreadable]: the compressed file is broken"),
        (b"PAR1 and no more", "FILE: error[not-parquet]"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str | bytes, found: str):
    assert found in refused(put(tmp_path, text))


def test_no_such_file(tmp_path: Path):
    put(tmp_path, PHILLY, "philly20k.csv")
    assert refused(str(tmp_path / "philly2k.csv")).endswith("philly20k.csv?")
    assert "error[not-a-file]" in refused(str(tmp_path))


def test_mends_name_what_was_meant(tmp_path: Path):
    assert refused(put(tmp_path, TABLE.replace("estimate_s", "estimates"))).endswith("did you mean estimate_s?")


def test_names_are_told_apart():
    jobs = [Job(name, "u", "q", 0.0, 1.0, 1) for name in ("a", "a", "b", "a#2", "a")]
    assert [job.name for job in make_trace("t", jobs).jobs] == ["a", "a#3", "b", "a#2", "a#4"]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["a", "a#2", "a#3", "b", "b#2", "a#2#2"]), max_size=12))
def test_names_are_always_told_apart(names: list[str]):
    trace = make_trace("t", [Job(name, "u", "q", 5.0, 1.0, 1) for name in names])
    assert len({job.name for job in trace.jobs}) == len(names)
    assert all(job.submit == 0.0 for job in trace.jobs)


def test_empty_traces_have_no_window():
    assert (Trace("t", ()).window, Trace("t", ()).chip_seconds) == (0.0, 0)


@settings(max_examples=60, deadline=None)
@given(
    data=st.binary(max_size=200) | st.text(alphabet=' ,;\n-1a"{}:.', max_size=120).map(str.encode),
    format=st.sampled_from([None, *FORMATS]),
)
def test_any_bytes_give_a_trace_or_a_problem(tmp_path_factory: pytest.TempPathFactory, data: bytes, format: str | None):
    source = put(tmp_path_factory.getbasetemp(), data, "any") + (f":{format}" if format else "")
    try:
        trace = read(source)
    except SpecError as error:
        assert error.problems
    else:
        assert all(job.chips > 0 for job in trace.jobs)
