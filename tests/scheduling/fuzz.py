"""Many random seeds of the machine, with all invariants on: `python tests/scheduling/fuzz.py --seeds 0..1000`.

Each seed makes a site, lets `--steps` things happen to it, replays its log, and then lets everything come to an end.
Seeds that fail are printed with what failed; exit code 1 when there are any.

With `--digest` one SHA-256 of all events and states is printed instead. It is the same on every machine, on every
version of Python, and for the core as it is compiled (`make compiled`).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import traceback
from collections.abc import Callable

from machine import check_endings, check_replay, run

from stellwerk.scheduling.codec import canonical

Check = Callable[[int, int], None]


def everything(seed: int, steps: int) -> None:
    """One seed; raises what is wrong."""
    site = run(seed, steps)
    check_replay(site)
    check_endings(site, random.Random(seed))
    check_replay(site)


def failures(seeds: range, steps: int, check: Check = everything) -> list[tuple[int, str]]:
    """The seeds that fail, each with what is wrong and where."""
    found: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            check(seed, steps)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append((seed, f"{type(error).__name__} {where.name}:{where.lineno} {str(error)[:600]}"))
            print(f"{seed}: {found[-1][1]}", flush=True)
    return found


def digest(seeds: range, steps: int) -> str:
    """What happened in all seeds, and what it led to, in 64 digits."""
    found = hashlib.sha256()
    for seed in seeds:
        site = run(seed, steps)
        check_endings(site, random.Random(seed))
        for record in (*site.log, site.state):
            found.update(canonical(record).encode())
    return found.hexdigest()


def span(text: str) -> range:
    """`A..B`, without B."""
    first, last = text.split("..")
    return range(int(first), int(last))


def main() -> int:
    """Run the seeds; 1 when any fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=span, default=range(1000), metavar="A..B")
    parser.add_argument("--steps", type=int, default=60, help="things that happen in each seed")
    parser.add_argument("--digest", action="store_true", help="print a digest of all that was decided")
    chosen = parser.parse_args()
    if chosen.digest:
        print(digest(chosen.seeds, chosen.steps))
        return 0
    found = failures(chosen.seeds, chosen.steps)
    print(f"{len(chosen.seeds)} seeds of {chosen.steps} steps, {len(found)} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
