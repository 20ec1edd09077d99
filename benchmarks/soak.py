"""Random kills, and nothing lost, doubled or left behind.

    python benchmarks/soak.py [--kills 300] [--seed N] [--workloads N] [--out FILE]

Keeps a few small workloads going on a fleet in a home of its own and kills the controller, whole hosts, drivers,
raylets and keepers at random times (`kill -9`). At the end every workload has succeeded, no two of its attempts ever
ran at once, each attempt is accounted for, and no process or folder of it remains. Exit code 1 and the findings
otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STELLWERK = [sys.executable, "-m", "stellwerk"]
FLEET = """
pools:
  - {name: trillium, accelerator: tpu-v6e, topology: 2x2, machine: ct6e-standard-4t, units: 2}
  - {name: pair, accelerator: tpu-v5p, topology: 2x2x2, machine: ct5p-hightpu-4t, units: 1}
"""
OPTIONS = ("tpu-v6e:2x2", "tpu-v6e:2x2*2", "tpu-v5p:2x2x2")
TARGETS = {"controller": 6, "driver": 4, "raylet": 4, "host": 4, "keeper": 2}


class Soak:
    """One soak in one home."""

    def __init__(self, kills: int, seed: int, home: Path) -> None:
        self.kills, self.home = kills, home
        self.rng = random.Random(seed)
        self.mark = f"soak-{home.parent.name}"
        self.scratch = home.parent / "tmp"
        self.scratch.mkdir()
        self.env = os.environ | {"STELLWERK_HOME": str(home), "SOAK_MARK": self.mark, "TMPDIR": str(self.scratch)}
        self.names: list[str] = []
        self.done: Counter[str] = Counter()

    def command(self, *words: str, check: bool = True) -> str:
        """Run a stellwerk command and return what it prints."""
        done = subprocess.run(
            [*STELLWERK, *words], env=self.env, capture_output=True, text=True, check=False, timeout=300
        )
        if check and done.returncode:
            raise SystemExit(f"stellwerk {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def listing(self, *words: str) -> Any:
        return json.loads(self.command(*words, "--json"))

    def processes(self) -> dict[int, str]:
        """Command lines of the living processes of this soak, other than this one and its commands."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
            except OSError:
                continue
        return found

    def up(self) -> None:
        self.command("up", "--fleet", str(self.home.parent / "fleet.yaml"))

    def submit(self) -> None:
        name = f"soak-{len(self.names)}"
        option = self.rng.choice(OPTIONS)
        self.command(
            "run",
            "--name",
            name,
            "--accelerator",
            option,
            "--detach",
            "--yes",
            "--",
            sys.executable,
            str(HERE / "soak_job.py"),
        )
        self.names.append(name)

    def kill_one(self) -> bool:
        """Kill something that lives; False when there was nothing of that sort."""
        target = self.rng.choices(list(TARGETS), list(TARGETS.values()))[0]
        if target == "host":
            return self.kill_host()
        signs = {
            "controller": "stellwerk.api",
            "driver": "stellwerk.runtime.driver",
            "raylet": "raylet/raylet ",
            "keeper": "local.keeper",
        }
        victims = [pid for pid, line in self.processes().items() if signs[target] in line]
        if not victims:
            return False
        try:
            os.kill(self.rng.choice(sorted(victims)), signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.done[target] += 1
        if target == "controller":
            self.up()
        return True

    def kill_host(self) -> bool:
        running = [one["name"] for one in self.listing("ls") if one["state"] == "running"]
        if not running:
            return False
        done = subprocess.run(
            [*STELLWERK, "chaos", "kill-host", self.rng.choice(running)], env=self.env, capture_output=True, check=False
        )
        self.done["host"] += done.returncode == 0
        return done.returncode == 0

    def run(self, workloads: int) -> list[str]:
        """The whole soak; returns what was found wrong."""
        (self.home.parent / "fleet.yaml").write_text(FLEET)
        self.up()
        while sum(self.done.values()) < self.kills:
            for _ in range(workloads - len(self.listing("ls"))):
                self.submit()
            time.sleep(self.rng.uniform(0.0, 3.0))
            self.kill_one()
            print(
                f"\r{sum(self.done.values())} kills {dict(self.done)}, {len(self.names)} workloads", end="", flush=True
            )
        print()
        return self.settle()

    def settle(self) -> list[str]:
        """Let everything end, take the controller down, and look at what is there."""
        while self.listing("ls"):
            time.sleep(1.0)
        found = [problem for name in self.names for problem in self.problems_of(name)]
        self.command("down")
        deadline = time.monotonic() + 30.0
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        found += [f"process left: {pid} {line}" for pid, line in left.items()]
        plans = (json.loads(plan.read_text()) for plan in self.home.glob("workloads/*/attempt-*/plan.json"))
        found += [f"folder left: {plan['run_dir']}" for plan in plans if Path(plan["run_dir"]).exists()]
        return found + [f"folder left: {path}" for path in self.scratch.iterdir()]

    def problems_of(self, name: str) -> list[str]:
        shown = self.listing("show", name)
        folder = next(iter(self.home.glob(f"workloads/{name}*/checkpoints")), None)
        finished = (folder / "finished").read_text().split() if folder and (folder / "finished").exists() else []
        found: list[str] = []
        if shown["outcome"] != "succeeded":
            found.append(f"{name}: {shown['outcome']} ({shown['cause']})")
        if not finished or len(finished) > 2 or (folder and (folder / "doubled").exists()):
            found.append(
                f"{name}: finished in attempts {finished}, doubled: {folder and (folder / 'doubled').exists()}"
            )
        numbers = [attempt["number"] for attempt in shown["attempts"]]
        if numbers != list(range(1, len(numbers) + 1)):
            found.append(f"{name}: attempts {numbers}")
        if any(attempt["cause"] not in (None, "infrastructure") for attempt in shown["attempts"]):
            found.append(f"{name}: causes {[attempt['cause'] for attempt in shown['attempts']]}")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workloads", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "soak.json")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stellwerk-soak-"))
    soak = Soak(options.kills, options.seed, folder / "home")
    began = time.monotonic()
    try:
        found = soak.run(options.workloads)
    except BaseException:
        print(f"\nafter {dict(soak.done)}; everything is kept in {folder}", file=sys.stderr)
        raise
    if not found:
        shutil.rmtree(folder)
    result = {
        "kills": dict(soak.done),
        "seed": options.seed,
        "workloads": len(soak.names),
        "problems": found,
        "seconds": round(time.monotonic() - began),
    }
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(found) or f"nothing lost, doubled or left behind in {result['seconds']} s")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
