"""What Stellwerk costs against plain Ray doing the same by hand, side by side in one run.

    python benchmarks/overhead.py [--rounds N] [--out FILE]

Both run `examples/tiny-lm/train.py` on one emulated v6e 4x4 slice (4 hosts, 16 chips), in turn, and are compared as
ratios: time from the command to the first training report, training throughput (tokens per second: the median of the
intervals between reports, so that a stall of the machine in one of them does not count) and memory (the largest sum of
proportional set sizes of all processes). Both are given the same `SETTINGS`. Then the start of the command line against
`python -c "import ray"`. Writes JSON and prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent / "examples" / "tiny-lm"
STELLWERK = [sys.executable, "-m", "stellwerk"]
MARKER = "BENCHMARK_MARK"
SETTINGS = {"STEPS": "150", "REPORT_EVERY": "5", "CHECKPOINT_EVERY": "75"}


@dataclass
class Run:
    """One training: seconds to the first report, tokens per second after it, bytes at the most."""

    first_report_s: float
    tokens_per_s: float
    memory: float


def marked(mark: str) -> Iterator[int]:
    """Processes that carry this run's mark in their environment."""
    needle = f"{MARKER}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if needle in (entry / "environ").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue


def proportional_size(pid: int) -> int:
    """Bytes of a process, shared pages divided among those who share them."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def reports(file: Path) -> list[dict[str, object]]:
    """Complete lines of a reports file."""
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


def watch(command: list[str], folder: Path, env: dict[str, str], find: Callable[[], Path | None]) -> Run:
    """Run `command` to its end, following its reports file and its memory."""
    mark = folder.name
    began = time.monotonic()
    first: float | None = None
    memory = 0
    next_sample = began + 5.0
    with (folder / "output.log").open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env | {MARKER: mark}
        )
        while process.poll() is None:
            time.sleep(0.1)
            now = time.monotonic()
            file = find() if first is None else None
            if file is not None and file.exists() and reports(file):
                first = now - began
            if now >= next_sample:
                memory = max(memory, sum(map(proportional_size, marked(mark))))
                next_sample = time.monotonic() + 8.0
    file = find()
    if process.returncode or first is None or file is None:
        raise SystemExit(f"{command} failed ({process.returncode}); see {folder / 'output.log'}")
    told = reports(file)
    if told[-1]["step"] != int(SETTINGS["STEPS"]):
        raise SystemExit(f"{command} did not run with the settings of this benchmark: {told[-1]}")
    speeds = [float(line["metrics"]["tokens_per_s"]) for line in told[1:]]  # type: ignore[index, call-overload]
    return Run(first, statistics.median(speeds), memory)


def plain(folder: Path, env: dict[str, str]) -> Run:
    """By hand, with Ray alone."""
    command = [sys.executable, str(HERE / "plain_ray.py"), str(folder)]
    return watch(command, folder, env, lambda: folder / "reports.jsonl")


def stellwerk(folder: Path, env: dict[str, str]) -> Run:
    """Through Stellwerk, controller and all, from nothing."""
    env = env | {"STELLWERK_HOME": str(folder / "home")}
    shutil.copytree(EXAMPLE, folder / "example")
    declared = folder / "example" / "train.yaml"
    declared.write_text(declared.read_text().replace('env: {STEPS: "60"}', f"env: {json.dumps(SETTINGS)}"))
    command = [*STELLWERK, "run", str(declared), "--accelerator", "tpu-v6e:4x4", "--yes"]
    try:
        reports_file = "home/workloads/*/attempt-1/reports.jsonl"
        return watch(command, folder, env, lambda: next(folder.glob(reports_file), None))
    finally:
        subprocess.run([*STELLWERK, "down"], env=env, capture_output=True, check=False)


def command_time(command: list[str]) -> float:
    """Median wall seconds of a command, of seven runs after one that warms the caches."""
    times: list[float] = []
    for _ in range(8):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def training(rounds: int) -> dict[str, object]:
    """Both ways in turn; medians and the ratio of each pair's median."""
    env = os.environ | SETTINGS
    runs: dict[str, list[Run]] = {"plain": [], "stellwerk": []}
    for _ in range(rounds):
        for name, way in (("plain", plain), ("stellwerk", stellwerk)):
            folder = Path(tempfile.mkdtemp(prefix="sw-bench-"))
            runs[name].append(way(folder, env))
            shutil.rmtree(folder)
    result: dict[str, object] = {"rounds": rounds}
    for figure in ("first_report_s", "tokens_per_s", "memory"):
        medians = {name: statistics.median(getattr(run, figure) for run in done) for name, done in runs.items()}
        ratios = [
            getattr(b, figure) / getattr(a, figure) for a, b in zip(runs["plain"], runs["stellwerk"], strict=True)
        ]
        result[figure] = {**medians, "ratio": statistics.median(ratios), "ratios": ratios}
    return result


def start() -> dict[str, object]:
    """The command line against the import of Ray."""
    base = command_time([sys.executable, "-c", "import ray"])
    found: dict[str, object] = {"import_ray_s": base}
    for name, command in (
        ("help", [*STELLWERK, "--help"]),
        ("plan", [*STELLWERK, "plan", str(EXAMPLE / "train.yaml")]),
    ):
        seconds = command_time(command)
        found[name] = {"seconds": seconds, "ratio": seconds / base}
    return found


GOALS = {"first_report_s": ("<=", 1.0), "tokens_per_s": (">=", 0.98), "memory": ("<=", 1.05)}


def table(result: dict[str, dict[str, dict[str, float]]]) -> str:
    """The comparison for people."""
    lines = [f"{'':16} {'plain Ray':>14} {'Stellwerk':>14} {'ratio':>7}  goal"]
    for figure, (sign, goal) in GOALS.items():
        row = result["training"][figure]
        scale = 2**20 if figure == "memory" else 1
        name = "memory_mib" if figure == "memory" else figure
        lines.append(
            f"{name:16} {row['plain'] / scale:14,.1f} {row['stellwerk'] / scale:14,.1f} "
            f"{row['ratio']:7.3f}  {sign} {goal}"
        )
    base = result["start"]["import_ray_s"]
    for name in ("help", "plan"):
        row = result["start"][name]
        title = "--help" if name == "help" else name
        lines.append(f"{title:16} {base:14.3f} {row['seconds']:14.3f} {row['ratio']:7.3f}  <= 0.35")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "overhead.json")
    parser.add_argument("--only", choices=("start", "training"))
    options = parser.parse_args()
    result: dict[str, object] = {}
    if options.only != "training":
        result["start"] = start()
    if options.only != "start":
        result["training"] = training(options.rounds)
    if options.only is None:
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        print(table(result))  # type: ignore[arg-type]
    else:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
