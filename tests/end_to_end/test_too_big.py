"""What this machine can never play is refused at once, with the figure, and nothing is submitted."""

from __future__ import annotations

import pytest
from end_to_end_home import Home

HUGE = "tpu-v5p:16x16x24"
FLEET = """
pools:
  - {name: whole-pod, accelerator: tpu-v5p, topology: 16x16x24, units: 1}
"""


@pytest.mark.parametrize("fleet", [None, FLEET], ids=["any-hardware", "declared"])
def test_a_shape_too_big_for_this_machine(home: Home, fleet: str | None) -> None:
    path = home.declare("huge", "", HUGE)
    if fleet is not None:
        home.up(fleet)
    refused = home.stellwerk("run", path, "--yes")
    assert refused.code == 1
    assert "GiB of this machine's memory" in refused.err
    assert refused.err.splitlines()[-1].endswith("nothing was submitted")
    planned = home.stellwerk("plan", path, "--json")
    assert planned.code == 1
    assert '"verdict": "never"' in planned.out
    if fleet is None:
        assert home.stellwerk("status").code == 3, "no controller was started for it"
    else:
        assert home.json("ls") == home.json("history") == []
