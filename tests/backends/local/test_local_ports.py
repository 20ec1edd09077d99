"""No port is given out twice, while nobody listens on any of them yet."""

import socket
import subprocess
import sys

from stellwerk.backends.local.ports import Ports

TAKES = """
from stellwerk.backends.local.ports import Ports
ports = Ports()
print(*ports.take(60), flush=True)
input()
"""


def test_two_clusters_never_have_the_same_port() -> None:
    mine = Ports()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", TAKES], text=True, **pipes) as other:  # type: ignore[call-overload]
        theirs = set(map(int, other.stdout.readline().split()))
        own = mine.take(200)
        assert len(set(own)) == 200
        assert len(theirs) == 60
        assert not theirs & set(own)
        other.stdin.write("done\n")
    mine.close()


def test_a_port_that_is_in_use_is_passed_over() -> None:
    ports = Ports()
    (first,) = ports.take(1)
    with socket.socket() as somebody:
        somebody.bind(("", first - 1))
        assert first - 1 not in ports.take(48)
    ports.close()


def test_what_is_given_back_can_be_leased_again() -> None:
    for _ in range(3):
        ports = Ports()
        assert len(ports.take(3000)) == 3000
        ports.close()
