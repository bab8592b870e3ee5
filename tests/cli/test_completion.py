"""Completion as shells ask for it, and a real bash that completes."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import environment, run, run_code

from sept_offline.cli import main
from sept_offline.cli.main import NO_SPACE, SHELLS

PROGRAM = Path(sys.executable).with_name("sept-offline")
COMPLETED = {
    "doc": ["doctor"],
    "fit x.h5 --preset ": ["default", "paper", "segment"],
    "fit x.h5 --method sept": ["sept", "sept-np"],
    "fit x.h5 --control discrete_": ["discrete_cql", "discrete_bcq", "discrete_iql"],
    "fit x.h5 --set latent.di": ["latent.dim="],
    "fit x.h5 --set latent.objective=": [
        "latent.objective=segment",
        "latent.objective=transitions",
    ],
    "fit x.h5 --set control.layer_norm=t": ["control.layer_norm=true"],
    "fit x.h5 --fallback ": ["none", "avg"],
    "fit x.h5 --rest": ["--restart"],
    "che": ["check"],
    "check nav": ["navigation2d", "navigation2d-switch"],
    "mer": ["merge"],
    "collect nav": ["navigation2d", "navigation2d-switch"],
    "collect hiv --behaviour random,re": ["random,replay"],
    "collect hiv --behaviour random,po": ["random,policy"],
    "collect hiv --engine ": ["local", "ray"],
    "collect hiv --instances t": ["train", "test"],
    "evaluate run --family ac": ["acrobot"],
    "bench --families hiv,a": ["hiv,acrobot"],
    "bench --methods sept,sept": ["sept,sept-np"],
    "bench --vary beh": ["behaviour="],
    "bench --vary behaviour=random,m": ["behaviour=random,medium", "behaviour=random,mixed"],
    "bench --vary probe_": ["probe_steps="],
    "bench --split v": ["validation"],
    "completion ": ["bash", "zsh", "fish"],
}
PLACES = {
    "inspect na": "file",
    "validate na": "file",
    "convert a.h5 na": "file",
    "merge a.h5 na": "file",
    "merge a.h5 b.h5 -o na": "file",
    "import na": "file",
    "demarcate na": "file",
    "fit na": "file",
    "fit a.h5 --config qu": "file",
    "evaluate ru": "dir",
    "ope ru": "dir",
    "ope run na": "file",
    "export ru": "dir",
    "export run --verify na": "file",
    "act ru": "dir",
    "bench --out be": "dir",
}


Ask = Callable[[str], list[list[str]]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """What bash is answered, as pairs of a kind and a value."""

    def answer(words: str) -> list[list[str]]:
        monkeypatch.setenv("_SEPT_OFFLINE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", f"sept-offline {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) + words.endswith(" ")))
        with pytest.raises(SystemExit) as done:
            main([])
        said = capsys.readouterr()
        assert done.value.code == 0 and said.err == ""
        return [line.split(",", 1) for line in said.out.splitlines()]

    return answer


@pytest.mark.parametrize("words", COMPLETED)
def test_names_complete(words: str, ask: Ask) -> None:
    assert sorted(ask(words)) == sorted(["plain", name] for name in COMPLETED[words])


@pytest.mark.parametrize("words", PLACES)
def test_places_complete(words: str, ask: Ask) -> None:
    assert ask(words) == [[PLACES[words], words.split()[-1]]]


def test_completing_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from sept_offline.cli import main\n"
        "os.environ['_SEPT_OFFLINE_COMPLETE'] = 'bash_complete'\n"
        "for words in sys.argv[1:]:\n"
        "    os.environ['COMP_WORDS'] = 'sept-offline ' + words\n"
        "    os.environ['COMP_CWORD'] = str(len(words.split()) + words.endswith(' '))\n"
        "    try: main([])\n"
        "    except SystemExit as done: assert done.code == 0\n"
        "heavy = {'torch', 'd3rlpy', 'gymnasium', 'h5py', 'pyarrow', 'numba', 'numpy', 'rich'}\n"
        "print(*sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = run_code(code, *COMPLETED, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.strip() == "", done.stderr
    for line in ("plain,latent.dim=", "plain,navigation2d", "plain,sept-np"):
        assert line in done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_asks_this_program(shell: str, tmp_path: Path) -> None:
    done = run("completion", shell, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    for word in ("sept-offline", "_SEPT_OFFLINE_COMPLETE", f"{shell}_complete"):
        assert word in done.stdout
    assert (NO_SPACE in done.stdout) == (shell == "bash")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_a_real_bash_completes_at_the_tab(tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=tmp_path,
        env={
            **environment(),
            "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
            "TERM": "dumb",
            "INPUTRC": os.devnull,
            "PS1": "$ ",
        },
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
    ) as bash:
        os.close(end)
        try:
            os.write(terminal, b'eval "$(sept-offline completion bash)"; echo rea""dy\n')
            _read_until(terminal, "ready")
            os.write(terminal, b"sept-offline fit nav.h5 --set latent.di\t3")
            # the value follows at once: no space was put after the sign
            _read_until(terminal, "--set latent.dim=3")
            os.write(terminal, b"\x15sept-offline collect acr\t")
            _read_until(terminal, "collect acrobot ")
        finally:
            bash.kill()
            os.close(terminal)


def _read_until(terminal: int, text: str) -> None:
    said, until = "", time.monotonic() + 60
    while text not in said:
        ready, _, _ = select.select([terminal], [], [], max(until - time.monotonic(), 0))
        assert ready, said
        said += os.read(terminal, 4096).decode()
