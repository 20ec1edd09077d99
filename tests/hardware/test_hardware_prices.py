"""Prices: what is unknown stays unknown, the choice is documented, the user's own come first."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.hardware import MARKETS, HardwareError, accelerator, accelerators, listed_price, price

NAMES = [acc.name for acc in accelerators()]


def test_default_is_the_first_sound_price_of_the_us():
    chosen = listed_price("v6e")
    assert chosen is not None
    assert (chosen.region, chosen.usd_per_chip_hour, chosen.date) == ("us-east1", 2.7, "2025-03-03")
    assert price("v6e") == 2.7
    assert price("v6e", "spot") == 1.89
    assert price("v6e", "commitment-3y") == 1.22


def test_unknown_stays_unknown():
    assert all(price("v7x", market) is None for market in MARKETS)
    assert price("cpu") is None
    assert price("l40s", "spot") is None
    assert price("v6e", "flex-start") is None
    assert price("v6e", region="us-west1") is None


def test_region():
    assert price("v6e", region="europe-west4") == 2.97
    assert price("v5e", region="us-east5") == 1.2
    assert price("h100", region="us-central1") == 11.06
    assert price("h100", region="us-west1") == 10.62
    assert price("h100", region="us-east-1") == 6.88
    assert price("h100", region="eastus") == 12.29


def test_whole_machine_comes_before_gpu_alone():
    for acc in accelerators():
        chosen = listed_price(acc.name)
        if chosen is not None:
            assert chosen.basis == "machine"


def test_machine_price():
    assert price("h100", machine="p5.48xlarge") == pytest.approx(55.04 / 8)
    assert price("h100", machine="Standard_ND96isr_H100_v5") == pytest.approx(12.29)
    assert price("h100", machine="a3-highgpu-8g") == 10.62


def test_overrides():
    own = {"TPU-V6E": 2.0, "v6e@spot": 0.9, "tpu7x": 5.5}
    assert price("tpu-v6e", overrides=own) == 2.0
    assert price("tpu-v6e", "spot", overrides=own) == 0.9
    assert price("tpu-v6e", "reserved", overrides=own) == 2.0
    assert price("v7x", overrides=own) == 5.5
    assert price("v5e", overrides=own) == 1.2
    assert price("v5e", overrides={"v5e": 0}) == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_price_is_a_number(value: float):
    with pytest.raises(HardwareError) as caught:
        price("v6e", overrides={"v6e": value})
    assert caught.value.code == "illegal-price"


def test_market_is_checked():
    with pytest.raises(HardwareError) as caught:
        price("v6e", "spto")
    assert (caught.value.code, caught.value.suggestion) == ("unknown-market", "spot")


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_any_text_gives_a_price_or_a_hardware_error(name: str, market: str, region: str, key: str):
    try:
        found = price(name, market or "on-demand", region, {key: 1.0} if key else None)
    except HardwareError as error:
        assert error.message
    else:
        assert found is None or found >= 0


def test_commitments_and_spot_are_cheaper():
    for acc in accelerators():
        by_place: dict[tuple[str, str, str | None], dict[str, float]] = {}
        for item in acc.prices:
            if item.doubt is None:
                place = (item.cloud, item.region, item.machine)
                by_place.setdefault(place, {}).setdefault(item.market, item.usd_per_chip_hour)
        for found in by_place.values():
            if "on-demand" in found:
                assert all(value <= found["on-demand"] for value in found.values())


def test_machine_prices_agree_with_listed_ones():
    for acc in accelerators():
        machines = {machine.name: machine for machine in acc.machines}
        for item in acc.prices:
            machine = machines.get(item.machine or "")
            if machine is not None and machine.usd_per_hour is not None:
                assert item.usd_per_chip_hour == pytest.approx(machine.usd_per_hour / machine.chips, rel=1e-4)


def test_no_placeholder_of_the_autoscaler():
    for name in ("h200", "b200", "gb200", "rtx-pro-6000", "v7x"):
        assert all(item.source != "gke-autoscaler" for item in accelerator(name).prices)
