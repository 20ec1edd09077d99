"""The environment of a TPU host: its values, and that Ray's own code reads the right labels from it."""

import pytest

from stellwerk.hardware import HardwareError, accelerators, host_bounds, host_environment, shape


def test_multi_host_slice():
    found = host_environment(shape("v6e", "4x4"), "g-0", 2, ["h0", "h1", "h2", "h3"])
    assert found["TPU_NAME"] == "g-0"
    assert found["TPU_WORKER_ID"] == "2"
    assert found["TPU_WORKER_HOSTNAMES"] == "h0,h1,h2,h3"
    assert found["TPU_ACCELERATOR_TYPE"] == "v6e-16"
    assert found["TPU_TOPOLOGY"] == "4x4"
    assert found["TPU_TOPOLOGY_WRAP"] == found["WRAP"] == "false,false,false"
    assert found["TPU_HOST_BOUNDS"] == "2,2,1"
    assert found["TPU_CHIPS_PER_HOST_BOUNDS"] == "2,2,1"
    assert "ENABLE_ICI_RESILIENCY" not in found


@pytest.mark.parametrize(
    ("machine", "hosts", "chips"),
    [("ct6e-standard-8t", "1,1,1", "2,4,1"), ("ct6e-standard-4t", "1,2,1", "2,2,1")],
)
def test_2x4_on_either_machine(machine: str, hosts: str, chips: str):
    reading = shape("v6e", "2x4", machine)
    names = [f"h{index}" for index in range(reading.hosts)]
    found = host_environment(reading, "g-0", 0, names)
    assert (found["TPU_HOST_BOUNDS"], found["TPU_CHIPS_PER_HOST_BOUNDS"]) == (hosts, chips)
    assert found["TPU_WORKER_HOSTNAMES"] == ("localhost" if reading.hosts == 1 else "h0,h1")


def test_torus_of_one_cube():
    names = [f"h{index}" for index in range(16)]
    found = host_environment(shape("v5p", "4x4x4"), "g-0", 15, names)
    assert found["TPU_TOPOLOGY_WRAP"] == "true,true,true"
    assert found["TPU_HOST_BOUNDS"] == "2,2,4"
    assert found["ENABLE_ICI_RESILIENCY"] == "true"


def test_unknown_wrap_is_left_out():
    found = host_environment(shape("v2", "4x4"), "g-0", 0, list("abcd"))
    assert not {"TPU_TOPOLOGY_WRAP", "WRAP"} & found.keys()


def test_bounds_multiply_to_the_hosts():
    for acc in accelerators():
        for found in acc.shapes:
            x, y, z = host_bounds(found)
            assert x * y * z == found.hosts


@pytest.mark.parametrize(("worker", "names"), [(4, "abcd"), (-1, "abcd"), (0, "abc")])
def test_hosts_must_fit_the_shape(worker: int, names: str):
    with pytest.raises(HardwareError) as caught:
        host_environment(shape("v6e", "4x4"), "g-0", worker, list(names))
    assert caught.value.code == "illegal-host"


@pytest.mark.parametrize(
    ("name", "topology", "pod_type", "ray_type"),
    [
        ("v6e", "4x4", "v6e-16", "TPU-V6E"),
        ("v5e", "4x4", "v5litepod-16", "TPU-V5LITEPOD"),
        ("v5p", "2x2x2", "v5p-16", "TPU-V5P"),
        ("v7x", "2x2x2", "v7x-16", "TPU-V7X"),
    ],
)
def test_ray_reads_its_labels_from_it(
    name: str, topology: str, pod_type: str, ray_type: str, monkeypatch: pytest.MonkeyPatch
):
    manager = pytest.importorskip("ray._private.accelerators.tpu").TPUAcceleratorManager
    found = shape(name, topology)
    hosts = [f"h{index}" for index in range(found.hosts)]
    for key, value in host_environment(found, "g-1", 0, hosts).items():
        monkeypatch.setenv(key, value)
    assert manager.get_current_node_accelerator_labels() == {
        "ray.io/tpu-slice-name": "g-1",
        "ray.io/tpu-worker-id": "0",
        "ray.io/tpu-topology": topology,
        "ray.io/tpu-pod-type": pod_type,
    }
    assert manager.get_current_node_accelerator_type() == ray_type
    assert manager.get_current_node_additional_resources() == {"g-1": 1, f"TPU-{pod_type}-head": 1}
