"""What users read, word by word: place, code, what was found, what is allowed, how to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stellwerk.spec import check

GOOD = "kind: job\nentrypoint: x.py\noptions: [cpu:2]\n"

MESSAGES = [
    (
        "kind: trian\nentrypoint: x.py\noptions: [cpu:2]\n",
        '1:7: error[not-allowed]: `kind` is "trian"; allowed are job, train, batch, serve, tune, rl, cluster'
        " or pipeline; did you mean train?",
    ),
    (GOOD + "retrys: 2\n", '4:1: error[unknown-key]: unknown key "retrys"; did you mean retries?'),
    (
        GOOD + "limits: {rnu: 6h}\n",
        '4:10: error[unknown-key]: unknown key "rnu" in `limits`; allowed are wait, start, run or cost;'
        " did you mean run?",
    ),
    (
        GOOD + "retries: '2'\n",
        '4:10: error[wrong-type]: `retries` is "2"; it must be a whole number; write it without quotes',
    ),
    (GOOD + "retries:\n", "4:1: error[no-value]: `retries` has no value; give it one, or leave the key out"),
    (GOOD + "retries: -1\n", "4:10: error[wrong-value]: `retries` is -1; it must be at least 0"),
    (GOOD + "limits: 6h\n", '4:9: error[wrong-type]: `limits` is "6h"; it must be a mapping'),
    (
        GOOD + "env: {EPOCHS: 3}\n",
        "4:15: error[env]: `env.EPOCHS`: 3 is not text, and environment variables are text;"
        ' write it in quotes, as in "3"',
    ),
    (
        GOOD + "runtime: 2 hours\n",
        '4:10: error[duration]: `runtime`: "2 hours" is not a duration; allowed are numbers with ms, s, m, h, d or w;'
        " write for example 20m, 1h30m or 2d",
    ),
    (
        GOOD + "name: Tiny_LM\n",
        '4:7: error[name]: `name`: "Tiny_LM" is not a name; allowed are a-z, 0-9 and -, with a letter or digit at both'
        " ends; did you mean tiny-lm?",
    ),
    (
        GOOD + "kind: job\n",
        '4:1: error[duplicate-key]: "kind" is given twice; first on line 1; leave one of them out',
    ),
    (
        GOOD + "framework: jax\n",
        "4:1: error[misplaced-key]: `framework` belongs to kind train; this is kind job",
    ),
    (
        "kind: job\noptions: [cpu:2]\n",
        "1:1: error[missing-key]: `entrypoint` is missing; kind job needs one;"
        " write for example `entrypoint: train.py`",
    ),
    (
        "kind: job\nentrypoint: x.py\noptions: tpu-v6e:4x4\n",
        '3:10: error[wrong-type]: `options` is "tpu-v6e:4x4"; it must be a list;'
        " write it as a list, as in `options: [tpu-v6e:4x4]`",
    ),
    (
        "kind: job\nentrypoint: x.py\noptions:\n  - tpu-v6e:4x5\n",
        "4:13: error[illegal-topology]: tpu-v6e does not come as 4x5;"
        " allowed are 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16 or 16x16; did you mean 4x4?",
    ),
    (
        "kind: job\nentrypoint: x.py\noptions:\n  - 'v6e:4x4@sopt'\n",
        '4:14: error[market]: "sopt" is not a market; allowed are on-demand, spot, reserved or flex-start;'
        " did you mean spot?",
    ),
    (
        "kind: job\nentrypoint: x.py\noptions: [v6e-16]\n",
        "3:11: error[missing-topology]: tpu-v6e with 16 chips needs a topology; allowed is 4x4;"
        " write for example tpu-v6e:4x4",
    ),
    ("- 1\n", "1:1: error[not-a-mapping]: the document is a list; a workload is a mapping"),
    ("~\n", "1:1: error[not-a-mapping]: the document is empty; a workload is a mapping"),
    ("", "1:1: error[empty]: the file is empty"),
    (
        "apiVersion: ray.io/v1\nkind: RayJob\n",
        '1:1: error[kind-unsupported]: this is a Kubernetes manifest of kind "RayJob";'
        " read today are workloads and fleets of Stellwerk",
    ),
    (
        "pools:\n  - {name: a, accelerator: v6e, topology: 2x4, units: 1}\n",
        "2:43: error[ambiguous-topology]: tpu-v6e 2x4 can be 2 hosts of 4 chips (ct6e-standard-4t) or 1 host of 8 chips"
        " (ct6e-standard-8t); a pool says which; write machine: ct6e-standard-4t or ct6e-standard-8t",
    ),
    (
        "pools:\n  - {name: a, accelerator: v6e, topology: 4x4, hosts: 2, units: 1}\n",
        "2:55: error[host-count]: tpu-v6e 4x4 is 16 chips: 4 hosts of 4 chips, not 2 hosts;"
        " did you mean 4 hosts of 4 chips?",
    ),
    (
        "pools:\n  - {name: a, accelerator: cpu, chips: 4, units: 1}\nqueues:\n  Bad: {}\n",
        '4:3: error[name]: `name`: "Bad" is not a name; allowed are a-z, 0-9 and -, with a letter or digit at both'
        " ends; did you mean bad?",
    ),
]


@pytest.mark.parametrize(("text", "expected"), MESSAGES)
def test_messages(text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(text)
    assert [problem.render() for problem in check(["f.yaml"])] == [f"f.yaml:{expected}"]


def test_terminal_control_characters_are_not_echoed(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(GOOD + 'queue: "\\e[31m"\n"\\e[2J": 1\n"a\\nb": 2\nenv: {"\\e[1m": x}\n')
    rendered = [problem.render() for problem in check([file])]
    assert len(rendered) == 4
    assert all(line.isprintable() for line in rendered)
