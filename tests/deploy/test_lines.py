"""One JSON object a line: episodes mixed, bad lines answered, and a process that does not fall."""

from __future__ import annotations

import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent import AdaptedContext
from sept_offline.agent.rewards import RewardForm
from sept_offline.seeding import integer
from sept_offline.tools.deploy import Lines, lines
from tests import processes
from tests.agent import builders

STATE = [0.1, 0.2, 0.3, 0.4]


def say(server: Lines, **request: Any) -> dict[str, Any]:
    found = server.answer(json.dumps(request))
    assert found is not None
    return found


def test_mixed_episodes_act_as_they_would_alone() -> None:
    agent = builders.make_agent("sept", fallback=True)
    server = Lines(agent, seed=3)
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(8, 4)).astype(np.float32) for name in ("a", "b", 7)}
    masks = rng.random((8, 3)) < 0.5
    masks[:, 0] |= ~masks.any(axis=1)
    alone = {
        "a": agent.begin(12),
        "b": agent.begin(integer(3, "act", '"b"')),
        7: agent.begin(integer(3, "act", "7")),
    }
    order = [(name, time) for time in range(8) for name in rows]
    for name, time in order:
        request: dict[str, Any] = {"episode": name, "observation": rows[name][time].tolist()}
        if name == "a" and time == 0:
            request["seed"] = 12
        if name == "b":
            request["mask"] = masks[time].tolist()
        episode = alone[name]
        phase = episode.phase
        action = episode.act(rows[name][time], mask=masks[time] if name == "b" else None)
        found = say(server, **request)
        assert found == {
            "episode": name,
            "action": action,
            "action_name": f"action_{action}",
            "phase": phase,
            "latent": None if episode.latent is None else episode.latent.tolist(),
            "uncertainty": episode.uncertainty,
            "novelty": episode.novelty,
            "flagged": episode.flagged,
            "out_of_range": list(episode.out_of_range),
        }
        assert phase == ("probe" if time < 3 else "control")
        assert (found["latent"] is None) == (time < 3)
    assert server.answer('{"episode": "a", "end": true}') is None
    assert list(server.episodes) == ["b", 7]
    assert server.answer('{"episode": "a", "end": true}') is None
    assert say(server, episode="a", observation=STATE)["phase"] == "probe"


BAD: list[tuple[str | bytes, Any, str]] = [
    ("", None, "not a JSON object"),
    ("hello", None, "not a JSON object"),
    ("[1, 2]", None, "a list"),
    ("null", None, "null"),
    (b"\xff\xfe{}", None, "not a JSON object"),
    ("[" * 100_000, None, "nested too deeply"),
    ('{"observation": [0, 0, 0, 0]}', None, 'must name its "episode"'),
    ('{"episode": 1.5, "observation": [0, 0, 0, 0]}', None, 'must name its "episode"'),
    ('{"episode": true, "observation": [0, 0, 0, 0]}', None, 'must name its "episode"'),
    ('{"episode": "a"}', "a", 'must have "observation" or "end"'),
    ('{"episode": "a", "observation": [0, 0, 0]}', "a", "observes 4 columns"),
    ('{"episode": "a", "observation": [[0, 0, 0, 0]]}', "a", "list of numbers"),
    ('{"episode": "a", "observation": [0, 0, 0, "1"]}', "a", "list of numbers"),
    ('{"episode": "a", "observation": [0, 0, 0, true]}', "a", "list of numbers"),
    ('{"episode": "a", "observation": null}', "a", "list of numbers"),
    ("NaN", None, "not a JSON object"),
    ('{"episode": NaN, "observation": [0, 0, 0, 0]}', None, 'must name its "episode"'),
    ('{"episode": "a", "observation": [0, 0, 0, NaN]}', "a", "NaN is not a number in JSON"),
    (
        '{"observation": [-Infinity, 0, 0, 0], "episode": "b"}',
        "b",
        "-Infinity is not a number in JSON",
    ),
    (
        '{"episode": "a", "observation": [0, 0, 0, 0], "reward": NaN}',
        "a",
        "NaN is not a number in JSON",
    ),
    ('{"episode": "a", "observation": [0, 0, 0, null]}', "a", "list of numbers"),
    ('{"episode": "a", "observation": [0, 0, 0, 1e999]}', "a", "not finite"),
    ('{"episode": "a", "observation": [0, 0, 0, 1e300]}', "a", "not finite"),
    ('{"episode": "a", "observation": [0, 0, 0, 1' + "0" * 400 + "]}", "a", "not finite"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "maks": []}', "a", "found maks"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "mask": [true]}', "a", "shape [3]"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "mask": [0, 0, 0]}', "a", "forbids"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "mask": [0, 2, 1]}', "a", "true and false"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "mask": "all"}', "a", "true and false"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "reward": 1}', "a", "did not declare"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "reward": "1"}', "a", "must be a number"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "seed": 1}', "a", "first line"),
    ('{"episode": "a", "observation": [0, 0, 0, 0], "hidden": {}}', "a", "first line"),
    ('{"episode": "b", "observation": [0, 0, 0, 0], "hidden": {"x": 1}}', "b", "did not declare"),
    ('{"episode": "b", "observation": [0, 0, 0, 0], "hidden": [1]}', "b", "an object"),
    ('{"episode": "b", "observation": [0, 0, 0, 0], "seed": -1}', "b", "whole number"),
    ('{"episode": "b", "observation": [0, 0, 0, 0], "seed": 1.5}', "b", "whole number"),
    ('{"episode": "b", "observation": [0]}', "b", "observes 4 columns"),
    ('{"episode": "a", "end": false}', "a", "no other key"),
    ('{"episode": "a", "end": true, "observation": [0, 0, 0, 0]}', "a", "no other key"),
]


def test_bad_lines_get_an_error_each_and_change_nothing() -> None:
    agent = builders.make_agent("sept")
    server, other = Lines(agent), agent.begin(seed=4)
    say(server, episode="a", observation=STATE, seed=4)
    other.act(np.array(STATE))
    for line, name, words in BAD:
        found = server.answer(line)
        assert found is not None and set(found) == {"episode", "error"}, line
        assert found["episode"] == name and words in found["error"], (line, found)
        assert list(server.episodes) == ["a"], line
    rows = np.random.default_rng(1).normal(size=(7, 4)).astype(np.float32)
    for row in rows:
        assert say(server, episode="a", observation=row.tolist())["action"] == other.act(row)


def test_an_end_has_no_answer_whether_or_not_the_episode_is_open() -> None:
    """A driver that reads an answer to every other line stays in step."""
    server = Lines(builders.make_agent("sept"))
    states = [json.dumps({"episode": name, "observation": STATE}) for name in ("a", "b")]
    ends = [json.dumps({"episode": name, "end": True}) for name in ("never", "a", "a")]
    source = io.BytesIO("\n".join([ends[0], states[0], *ends[1:], states[1]]).encode())
    found = [json.loads(answer) for answer in server.serve(source)]
    assert [one["episode"] for one in found] == ["a", "b"]
    assert list(server.episodes) == ["b"]


def test_names_of_any_letters() -> None:
    server = Lines(builders.make_agent("sept"))
    for name in ("", "病房", "\ud800", 'quote"', 0, -5, 10**30):
        assert say(server, episode=name, observation=STATE)["episode"] == name
    assert len(server.episodes) == 7


def test_a_huge_line_is_read_past() -> None:
    server = Lines(builders.make_agent("sept"))
    good = json.dumps({"episode": "a", "observation": STATE}).encode()
    huge = b'{"episode": "a", "observation": [' + b"0," * (3 * lines.SHORTEST_LIMIT) + b"0]}"
    exact = good + b" " * (server.limit - len(good) - 1)
    source = io.BytesIO(b"\n".join([good, huge, exact, good]))
    found = [json.loads(answer) for answer in server.serve(source)]
    assert ["error" in one for one in found] == [False, True, False, False]
    assert "bytes" in found[1]["error"]
    assert server.episodes["a"].steps == 3


def test_too_many_open_episodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "OPEN_LIMIT", 2)
    server = Lines(builders.make_agent("avg"))
    found = [say(server, episode=name, observation=STATE) for name in "abc"]
    assert ["error" in one for one in found] == [False, False, True]
    server.answer('{"episode": "a", "end": true}')
    assert "action" in say(server, episode="c", observation=STATE)


def test_what_an_agent_needs_is_given_in_its_lines() -> None:
    oracle = Lines(builders.make_agent("oracle"))
    hidden = {"mass": 0.4, "length": 1}
    expected = oracle.agent.begin(0, {"mass": 0.4, "length": 1.0}).act(np.array(STATE))
    assert "needs 'hidden'" in say(oracle, episode="a", observation=STATE)["error"]
    for wrong in ({"mass": "x", "length": 1}, {"mass": 1}, {"mass": 1e999, "length": 1}):
        assert "error" in say(oracle, episode="a", observation=STATE, hidden=wrong)
    assert say(oracle, episode="a", observation=STATE, hidden=hidden)["action"] == expected
    assert "action" in say(oracle, episode="a", observation=STATE)

    agent = builders.make_agent("avg")
    plain = replace(agent.control, network=builders.mlp(np.random.default_rng(0), [4, 8, 3]))
    form = RewardForm(log=False, scale=1.0, goal=None, gamma=0.9)
    context = AdaptedContext(2, 0.1, form)
    maml = Lines(replace(agent, method="maml", context=context, control=plain))
    alone = maml.agent.begin()
    assert say(maml, episode=1, observation=STATE)["action"] == alone.act(np.array(STATE))
    assert "needs 'reward'" in say(maml, episode=1, observation=STATE)["error"]
    endless = '{"episode": 1, "observation": [0, 0, 0, 0], "reward": 1e999}'
    assert "not finite" in (maml.answer(endless) or {})["error"]
    for reward in (1.0, -2, 3.5):
        found = say(maml, episode=1, observation=STATE, reward=reward)
        assert found["action"] == alone.act(np.array(STATE), float(reward))


def start(fitted: Path) -> processes.Process:
    words = ("act", fitted / "runs" / "nav", "--seed", "2")
    return processes.start(*words, stdin=subprocess.PIPE)


def test_a_process_answers_each_line_at_once(fitted: Path) -> None:
    agent = so.load_agent(fitted / "runs" / "nav")
    alone = agent.begin(5)
    with start(fitted) as process:
        assert process.stdin is not None and process.stdout is not None
        for step in range(4):
            row = [0.1 * step, -0.2]
            request = {"episode": "a", "observation": row} | ({} if step else {"seed": 5})
            # the answer is read before the next line is written
            process.stdin.write("not json\n" + json.dumps(request) + "\n")
            process.stdin.flush()
            assert "error" in json.loads(process.stdout.readline())
            found = json.loads(process.stdout.readline())
            assert found["action"] == alone.act(np.array(row))
        out, err = process.communicate('{"episode": "a", "end": true}\n', timeout=60)
    assert (out, err, process.returncode) == ("", "", 0)


def test_a_reader_that_goes_away_ends_it_quietly(fitted: Path) -> None:
    with start(fitted) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        line = '{"episode": "a", "observation": [0, 0]}\n'
        process.stdin.write(line)
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        try:
            for _ in range(1000):
                process.stdin.write(line)
            process.stdin.close()
        except BrokenPipeError:
            pass
        err = process.stderr.read()
        process.wait(timeout=60)
    assert err == "" and process.returncode == 1


def test_a_box_is_answered_with_numbers_and_takes_bounds() -> None:
    agent = builders.make_agent("refined", space=builders.BOX)
    server, alone = Lines(agent), agent.begin(4)
    rows = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
    for time, row in enumerate(rows):
        first = {"seed": 4} if time == 0 else {}
        bounds = [[-0.5, 0.1], [0.5, 0.2]] if time % 2 else None
        found = say(server, episode="a", observation=row.tolist(), bounds=bounds, **first)
        assert found["action"] == alone.act(row, bounds=bounds).tolist()
        assert "action_name" not in found
        if bounds is not None:
            assert -0.5 <= found["action"][0] <= 0.5 and 0.1 <= found["action"][1] <= 0.2 + 1e-6
    for wrong, words in (
        ({"bounds": 3}, "two lists"),
        ({"bounds": [[0.1, 0.1]]}, "two lists"),
        ({"bounds": [["a", 0], [1, 1]]}, "list of numbers"),
        ({"bounds": [[0.5, 0.1], [0.4, 0.2]]}, "leave an action"),
        ({"bounds": [[0.5], [0.7]]}, "2 numbers each"),
        ({"mask": [True, True]}, "not a mask"),
    ):
        answer = say(server, episode="a", observation=STATE, **wrong)
        assert words in answer["error"]
    assert say(server, episode="a", observation=STATE)["action"] == alone.act(STATE).tolist()
