"""Many random seeds of the machine, with all invariants on: `python tests/scheduling/fuzz.py --seeds 0..1000`.

Each seed makes a site, lets `--steps` things happen to it, replays its log, and then lets everything come to an end.
Seeds that fail are printed with what failed; exit code 1 when there are any.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Callable

from machine import check_endings, check_replay, run

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


def span(text: str) -> range:
    """`A..B`, without B."""
    first, last = text.split("..")
    return range(int(first), int(last))


def main() -> int:
    """Run the seeds; 1 when any fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=span, default=range(1000), metavar="A..B")
    parser.add_argument("--steps", type=int, default=60, help="things that happen in each seed")
    chosen = parser.parse_args()
    found = failures(chosen.seeds, chosen.steps)
    print(f"{len(chosen.seeds)} seeds of {chosen.steps} steps, {len(found)} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
