"""A Ray cluster to work in, logical GPUs and CPUs, and two homes on one machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from end_to_end_home import Home

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SEES = """
import json, os, ray, stellwerk
from gate import wait_for_gate
ray.init()
(node,) = [node for node in ray.nodes() if node["Resources"].get("CPU")]
seen = {name: amount for name, amount in ray.cluster_resources().items() if name in ("CPU", "GPU") or ":H" in name}
with open(os.environ["NOTES"], "a") as notes:
    label = node["Labels"].get("ray.io/accelerator-type")
    notes.write(json.dumps({"seen": seen, "label": label, "option": stellwerk.current().option}) + "\\n")
wait_for_gate()
"""


def test_commands_in_a_cluster(home: Home) -> None:
    home.up()
    started = home.stellwerk("run", home.declare("shared", "", "cpu:2", kind="cluster"), "--yes")
    assert started.code == 0, started
    assert started.err.splitlines()[-1] == "shared: is up; run in it with: stellwerk run --cluster shared -- COMMAND"
    assert [(one["name"], one["kind"], one["state"]) for one in home.json("ls")] == [("shared", "cluster", "running")]

    code = "import ray; ray.init(log_to_driver=False); print('CPUs:', ray.cluster_resources()['CPU'])"
    done = home.stellwerk("run", "--cluster", "shared", "--", "python", "-W", "ignore", "-c", code)
    assert done.code == 0, done
    assert "CPUs: 2.0" in done.out.splitlines()
    done = home.stellwerk("run", "--cluster", "shared", "--", "python", "-c", "print('so far'); raise SystemExit(4)")
    assert (done.code, done.out) == (1, "so far\n")
    assert done.err == "shared: the command ended with exit code 4\n"
    assert home.json("show", "shared")["state"] == "running", "a failed command does not end the cluster"

    assert home.good("stop", "shared") == "shared stopped\n"
    done = home.stellwerk("run", "--cluster", "shared", "--", "true")
    assert done.code == 2
    assert "shared is ended" in done.err


def test_two_homes_with_gpus_and_cpus(homes: Callable[[str], Home]) -> None:
    sites = {"h100:2": homes("left"), "cpu:2": homes("right")}
    left, right = sites.values()
    assert left.up() != right.up()
    for option, site in sites.items():
        site.submit("same-name", SEES, option)
    for site in sites.values():
        site.running("same-name")
        site.until("same-name", lambda found, site=site: site.notes("same-name"))
    (gpus,), (cpus,) = left.notes("same-name"), right.notes("same-name")
    assert gpus["seen"]["GPU"] == 2 and gpus["seen"]["accelerator_type:H100"] == 1
    assert (gpus["label"], gpus["option"]) == ("H100", "h100:2")
    assert cpus == {"seen": {"CPU": 2}, "label": None, "option": "cpu:2"}
    assert left.json("status")["url"] != right.json("status")["url"]
    assert [one["option"] for one in left.json("ls")] == ["h100:2"]
    assert left.json("ls")[0]["emulated"] and not right.json("ls")[0]["emulated"]

    left.take_down()
    still = right.json("show", "same-name")
    assert (still["state"], still["attempt"]) == ("running", 1)
    right.open_gate("same-name")
    assert right.ended("same-name")["outcome"] == "succeeded"
    assert len(right.notes("same-name")) == 1
