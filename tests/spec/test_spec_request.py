from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk import hardware
from stellwerk.spec import MARKETS, Flaw, Option, SpecError, Workload, load_workload, parse_option


def loaded(option: object, **more: object) -> Workload:
    return load_workload({"kind": "job", "name": "x", "entrypoint": "x.py", "options": [option]}, **more)  # type: ignore[arg-type]


def option_of(declared: object) -> Option:
    return loaded(declared).options[0].parts[0].option


def refusal(declared: object) -> str:
    with pytest.raises(SpecError) as caught:
        loaded(declared)
    return "\n".join(problem.render() for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("written", "short", "chips", "hosts"),
    [
        ("v6e:4x4", "tpu-v6e:4x4", 16, 4),
        ("TPU-V6E:4x4*2@spot", "tpu-v6e:4x4*2@spot", 32, 8),
        (" tpu-v6e-slice : 4 X 4 * 2 @ spot ", "tpu-v6e:4x4*2@spot", 32, 8),
        ("v5p:2x2x2", "tpu-v5p:2x2x2", 8, 2),
        ("h100:16", "h100:16", 16, None),
        ("A100-80GB:8@flex-start", "a100-80g:8@flex-start", 8, None),
        ("cpu:2", "cpu:2", 2, None),
        ("v6e-16:4x4", "tpu-v6e:4x4", 16, 4),
    ],
)
def test_short_forms(written: str, short: str, chips: int, hosts: int | None) -> None:
    option = parse_option(written)
    assert (option.short, option.chips, option.hosts) == (short, chips, hosts)


@pytest.mark.parametrize(
    ("written", "offset", "code", "said"),
    [
        (
            "v6e-16",
            0,
            "missing-topology",
            "16 chips needs a topology; allowed is 4x4; write for example tpu-v6e:4x4",
        ),
        ("v6e:16", 4, "missing-topology", "allowed is 4x4"),
        ("v6e:17", 4, "missing-topology", "no slice of 17 chips"),
        ("v6e", 0, "missing-topology", "write for example tpu-v6e:"),
        ("ct6e:4x4", 0, "unknown-accelerator", "did you mean tpu-v6e?"),
        ("v6f:4x4", 0, "unknown-accelerator", "did you mean tpu-v6e?"),
        ("v6e:4x5", 4, "illegal-topology", "did you mean 4x4?"),
        ("v6e:4x4*x", 8, "slices", "whole number"),
        ("v6e:4x4*4..1", 8, "slices", "ends before"),
        ("v6e:4x4*0", 8, "wrong-value", "at least 1"),
        ("v6e:4x4@spt", 8, "market", "did you mean spot?"),
        ("v6e-8:4x4", 6, "topology", "counts 8 chips, but 4x4 has 16"),
        ("h100", 0, "missing-count", "write for example h100:8"),
        ("h100:2x4", 5, "not-a-tpu", "write for example h100:8"),
        ("h100:8*2", 7, "not-a-tpu", "write for example h100:16"),
        ("h100:many", 5, "option", "write for example"),
        ("h100:0", 5, "wrong-value", "at least 1"),
        ("a100:8", 0, "ambiguous-accelerator", "a100-40g or a100-80g"),
        ("", 0, "option", "names no accelerator"),
        ("@spot", 0, "option", "names no accelerator"),
    ],
)
def test_short_forms_that_are_refused(written: str, offset: int, code: str, said: str) -> None:
    with pytest.raises(Flaw) as caught:
        parse_option(written)
    assert (caught.value.offset, caught.value.code) == (offset, code)
    assert said in str(caught.value)


def _legal() -> list[str]:
    tpus = [
        f"{chip.name}:{shape.topology}"
        for chip in hardware.accelerators()
        if chip.kind == "tpu"
        for shape in chip.shapes
    ]
    return [*sorted(set(tpus)), "h100:8", "a100-40g:3", "cpu:64", "t4:1"]


@settings(deadline=None)
@given(st.sampled_from(_legal()), st.integers(1, 300), st.sampled_from([*MARKETS, None]))
def test_short_forms_round_trip(hardware_form: str, slices: int, market: str | None) -> None:
    times = f"*{slices}" if "x" in hardware_form and slices > 1 else ""
    written = hardware_form + times + (f"@{market}" if market else "")
    option = parse_option(written)
    assert option.short == written
    assert parse_option(option.short) == option
    assert option_of(option.model_dump(mode="json")) == option


@settings(deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="v6eh10-:x*@spot 4", max_size=20))
def test_any_text_is_an_option_or_a_flaw_inside_it(text: str) -> None:
    try:
        option = parse_option(text)
    except Flaw as flaw:
        assert flaw.offset is not None
        assert 0 <= flaw.offset <= len(text)
    else:
        assert parse_option(option.short) == option


class TestHostsAgainstShape:
    """T1: a number of hosts that the shape does not have is refused with the right one."""

    def test_two_hosts_for_4x4(self) -> None:
        declared = {"accelerator": "v6e", "topology": "4x4", "chips_per_host": 4, "hosts": 2}
        assert "4 hosts of 4 chips, not 2 hosts" in refusal(declared)

    def test_without_chips_per_host(self) -> None:
        assert "4 hosts of 4 chips, not 2 hosts" in refusal({"accelerator": "v6e", "topology": "4x4", "hosts": 2})

    def test_the_right_number(self) -> None:
        option = option_of({"accelerator": "v6e", "topology": "4x4", "hosts": 4})
        assert option == parse_option("v6e:4x4"), "what is said twice makes no other option"


class TestAmbiguous2x4:
    """T2: v6e 2x4 is one host of 8 chips or two of 4; it is never guessed silently."""

    @pytest.mark.parametrize(
        ("said", "machine", "hosts"),
        [
            ({"chips_per_host": 8, "hosts": 1}, "ct6e-standard-8t", 1),
            ({"chips_per_host": 4, "hosts": 2}, "ct6e-standard-4t", 2),
            ({"hosts": 2}, "ct6e-standard-4t", 2),
            ({"chips_per_host": 8}, "ct6e-standard-8t", 1),
            ({"machine": "ct6e-standard-4t"}, "ct6e-standard-4t", 2),
            ({"machine": "CT6E-standard-8t", "hosts": 1}, "ct6e-standard-8t", 1),
        ],
    )
    def test_resolved(self, said: dict[str, object], machine: str, hosts: int) -> None:
        workload = loaded({"accelerator": "v6e", "topology": "2x4", **said})
        option = workload.options[0].parts[0].option
        assert (option.machine, option.hosts) == (machine, hosts)
        assert workload.warnings == ()

    def test_half_a_slice(self) -> None:
        text = refusal({"accelerator": "v6e", "topology": "2x4", "chips_per_host": 4, "hosts": 1})
        assert "half a slice" in text
        assert "2 hosts of 4 chips" in text

    def test_nothing_said_is_a_warning(self) -> None:
        workload = loaded("v6e:2x4")
        assert [problem.code for problem in workload.warnings] == ["ambiguous-topology"]
        text = workload.warnings[0].render()
        assert "2 hosts of 4 chips (ct6e-standard-4t)" in text
        assert "1 host of 8 chips (ct6e-standard-8t)" in text
        assert workload.options[0].parts[0].option.machine is None
        assert workload.options[0].parts[0].option.hosts == 1, "the reading that Ray assumes"

    def test_an_unknown_machine(self) -> None:
        assert "machine" in refusal({"accelerator": "v6e", "topology": "2x4", "machine": "ct6e-standard-3t"})


class TestNames:
    """T3: every spelling in use is accepted, shown in one, and near misses are mended."""

    @pytest.mark.parametrize("spelling", ["v5e", "TPU-V5E", "v5litepod", "tpu-v5-lite-podslice"])
    def test_v5e(self, spelling: str) -> None:
        assert parse_option(f"{spelling}:4x4").accelerator == "tpu-v5e"

    @pytest.mark.parametrize("spelling", ["tpu7x", "TPU-V7X"])
    def test_v7x(self, spelling: str) -> None:
        assert parse_option(f"{spelling}:2x2x2").accelerator == "tpu-v7x"

    def test_a_size_asks_for_the_shape(self) -> None:
        assert "4x4" in refusal("v6e-16")

    def test_a_machine_family_is_mended(self) -> None:
        assert "did you mean tpu-v6e?" in refusal("ct6e:4x4")


class TestMappings:
    def test_a_short_form_inside(self) -> None:
        option = option_of({"accelerator": "v6e:4x4*2", "market": "spot", "patience": "10m"})
        assert option.short == "tpu-v6e:4x4*2@spot"
        assert option.patience == 600

    def test_a_short_form_and_the_same_again(self) -> None:
        assert "`topology` is given twice" in refusal({"accelerator": "v6e:4x4", "topology": "4x4"})

    def test_gpus_have_no_shape(self) -> None:
        for key, value in (("topology", "2x2"), ("slices", 2), ("hosts", 2), ("chips_per_host", 8)):
            assert f"`{key}` is for TPUs" in refusal({"accelerator": "h100", "count": 16, key: value})

    def test_a_gpu_machine(self) -> None:
        option = option_of({"accelerator": "h100", "count": 16, "machine": "A3-highgpu-8g"})
        assert (option.machine, option.hosts) == ("a3-highgpu-8g", 2)
        assert "did you mean a3-highgpu-8g?" in refusal({"accelerator": "h100", "count": 8, "machine": "a3-higgpu-8g"})

    def test_runtime_and_patience_reach_the_choice(self) -> None:
        choice = loaded({"accelerator": "h100", "count": 16, "runtime": "3h", "patience": 60}).options[0]
        assert (choice.runtime, choice.patience) == (10800, 60)


def test_hardware_that_only_the_fleet_knows() -> None:
    assert "p100" in refusal("p100:8")
    workload = loaded("P100:8", extra_accelerators={"p100"})
    option = workload.options[0].parts[0].option
    assert (option.short, option.chips, option.hosts) == ("p100:8", 8, None)


def test_options_can_be_hashed_and_compared() -> None:
    assert len({parse_option("v6e:4x4"), parse_option("TPU-V6E:4x4"), parse_option("v6e:4x4*2")}) == 2
