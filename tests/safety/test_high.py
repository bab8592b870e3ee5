"""Full disks, damage, small files that claim much, links that lead elsewhere: one sentence each."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import sept_offline as so
from sept_offline.errors import AgentError, DataError, SeptError
from sept_offline.evaluation import load_results
from tests import processes

Command = Callable[..., tuple[int, str]]
Edit = Callable[..., None]
COLLECT = ("collect", "navigation2d", "--behaviour", "random", "--episodes", "4", "--quiet")


def limited(bytes_: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A separate command that may write files of at most this many bytes, as under `ulimit -f`."""
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_}, {bytes_}))"
    return processes.run(*arguments, code=f"import resource; {limit}; {processes.COMMAND}")


# 4. A full disk


def test_convert_on_a_full_disk_ends_with_a_sentence(folder: Path) -> None:
    rng = np.random.default_rng(0)
    with so.DatasetWriter(folder / "large.parquet", num_actions=2) as writer:
        for _ in range(40):
            writer.append(
                instance="a",
                observations=rng.normal(size=(101, 4)),
                actions=rng.integers(0, 2, size=100),
                rewards=rng.normal(size=100),
                terminated=True,
                truncated=False,
            )
    shutil.copy("logs.h5", "old.h5")
    before = Path("old.h5").read_bytes()
    found = limited(12 * 1024, "convert", "large.parquet", "old.h5", "--quiet")
    assert found.returncode == 2, found
    assert found.stderr.startswith("Error: Cannot write old.h5: File too large")
    assert len(found.stderr.splitlines()) == 1
    assert Path("old.h5").read_bytes() == before
    assert not list(folder.glob(".old*"))


def test_a_snapshot_that_cannot_be_written_is_one_sentence(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # more than the record and the metrics take, less than a snapshot
    done = limited(
        6 * 1024,
        "fit",
        "logs.h5",
        "--method",
        "avg",
        "--quiet",
        "-o",
        "new",
        "--set",
        "control.updates=4",
        "--set",
        "control.hidden=[64,64]",
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "Cannot write new" in done.stderr


# 5. Checksums over everything a run reads back


def flips(path: Path, count: int = 40) -> list[bytes]:
    """Contents of a file with one bit changed, anywhere."""
    content, rng = path.read_bytes(), np.random.default_rng(0)
    found = []
    for place in rng.integers(0, len(content), size=count).tolist():
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(0, 8))
        found.append(bytes(changed))
    return found


def silent(path: Path, read: Callable[[], object]) -> int:
    """How many damaged versions of a file are read without a word, with other content."""
    content, expected = path.read_bytes(), repr(read())
    wrong = 0
    for changed in flips(path):
        path.write_bytes(changed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                wrong += repr(read()) != expected
        except (SeptError, UserWarning):
            pass
    path.write_bytes(content)
    return wrong


def test_damaged_results_are_refused(folder: Path) -> None:
    path = folder / "run" / "results.parquet"
    assert silent(path, lambda: load_results(path)) == 0
    shutil.copy(path, folder / "copy.parquet")
    load_results(path).write(folder / "copy.json")
    assert silent(folder / "copy.json", lambda: load_results(folder / "copy.json")) == 0


def begin(folder: Path) -> Path:
    """A run that stopped in the middle, with a snapshot."""
    from sept_offline.methods import fitting

    data = so.load_dataset(folder / "logs.h5")
    run = fitting.RunDirectory(folder / "begun", checkpoint_seconds=0.0)
    settings = {"control": {"updates": 40, "hidden": [4], "batch_size": 4, "members": 1}}
    config = fitting.resolve_config(data, "default", settings)
    work = fitting.Fitter(data, "avg", config, 0, run)
    record = {"method": "avg", "seed": 0, "config": {}}
    run.open(record, resume=False, restart=False)
    for number, _ in enumerate(work):
        if number == 10:
            break
    run.close()
    data.close()
    return folder / "begun"


@pytest.mark.parametrize("name", ["checkpoints/0-control.safetensors", "metrics.csv", "run.json"])
def test_damage_is_not_resumed(folder: Path, name: str) -> None:
    from sept_offline.methods import fitting

    begun = begin(folder)
    whole = (begun / "metrics.csv").read_bytes()

    class Stage:
        name, total, done = "control", 40, 0
        seen = ""

        def restore(self, state: object) -> None:
            tensors = {key: one.tolist() for key, one in state.tensors.items()}  # type: ignore[attr-defined]
            self.done = state.values["done"]  # type: ignore[attr-defined]
            self.seen = f"{tensors} {state.values}"  # type: ignore[attr-defined]

    def resume() -> str:
        run, stage = fitting.RunDirectory(begun), Stage()
        run.open({"method": "avg", "seed": 0, "config": {}}, resume=True, restart=False)
        try:
            run.restore(0, stage)  # type: ignore[arg-type]
            return stage.seen + (begun / "metrics.csv").read_text()
        finally:
            run.close()
            if name != "metrics.csv":
                (begun / "metrics.csv").write_bytes(whole)

    assert silent(begun / name, resume) == 0


def test_hidden_parameters_beside_a_manifest_are_checked(tmp_path: Path, command: Command) -> None:
    assert command(*COLLECT, "-o", tmp_path / "x")[0] == 0
    path = tmp_path / "x" / "_privileged.json"

    def hidden() -> object:
        with so.load_dataset(tmp_path / "x") as data:
            return None if data.hidden is None else data.hidden.values.tolist()

    assert silent(path, hidden) == 0
    path.unlink()
    with pytest.raises(DataError, match="_privileged"):
        so.load_dataset(tmp_path / "x")


def test_a_checksum_that_damage_hides_is_noticed(folder: Path, command: Command) -> None:
    import pyarrow.parquet as pq

    so.convert("logs.h5", "logs.parquet")
    content = Path("logs.parquet").read_bytes()
    # In Thrift: a list of five structs, then the first key; as another field, Arrow passes over it.
    start = content.rfind(b"\x19\x5c\x18\x12sept_offline.")
    assert start > 0
    hidden = b"".join((content[:start], b"\x76\xa3", content[start + 2 :]))
    Path("logs.parquet").write_bytes(hidden)
    assert not pq.read_metadata("logs.parquet").metadata
    assert "changed bytes" in {one.kind for one in so.validate("logs.parquet").errors}
    code, said = command("fit", "logs.parquet", "--method", "avg", "--quiet", "-o", "new")
    assert code == 2 and "logs.parquet" in said
    with pytest.raises(DataError, match=r"logs\.parquet"):
        so.load_dataset("logs.parquet", check=True)


@pytest.mark.parametrize("form", ["numpy", "onnx"])
def test_every_file_of_an_export_is_checked(folder: Path, form: str) -> None:
    if form == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    from sept_offline.tools.deploy import export, load_export

    export(so.load_agent("run"), folder / "out", form, observations=5)
    manifest = folder / "out" / "manifest.json"
    assert silent(manifest, lambda: load_export(folder / "out").manifest) == 0
    for path in sorted((folder / "out").rglob("*")):
        if path.is_file() and path != manifest:
            content = path.read_bytes()
            for changed in flips(path, 6):
                path.write_bytes(changed)
                with pytest.raises(AgentError):
                    load_export(folder / "out")
            path.write_bytes(content)


def test_a_graph_is_never_looked_for_outside_of_its_export(folder: Path, edit: Edit) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from sept_offline.tools.deploy import export, load_export

    export(so.load_agent("run"), folder / "out", "onnx", observations=5)
    shutil.copy(folder / "out" / "control.onnx", folder / "elsewhere.onnx")
    graphs = json.loads((folder / "out" / "manifest.json").read_text())["graphs"]
    graphs["control"]["file"] = "../elsewhere.onnx"
    edit(folder / "out" / "manifest.json", graphs=graphs)
    with pytest.raises(AgentError, match="names a different file"):
        load_export(folder / "out")


def test_damaged_bench_tables_are_refused(tmp_path: Path) -> None:
    from sept_offline.tools.bench.store import Finished, gather, read_table, write_cell

    named = {"family": "f", "method": "m", "preset": "p", "variant": "v", "data_seed": 0, "seed": 0}
    training = [{"stage": "s", "update": 1, "metric": "x", "value": 1.0}]
    write_cell(tmp_path / "cells" / "a.parquet", Finished([], named, named, training, []))
    gather(tmp_path)
    path = tmp_path / "training.parquet"
    assert silent(path, lambda: read_table(tmp_path, "training")) == 0


def test_files_from_before_checksums_open_with_one_warning(folder: Path) -> None:
    import pyarrow.parquet as pq

    from sept_offline.tools.report.sources import close, read_run

    run = folder / "run"
    record = json.loads((run / "run.json").read_text())
    for key in ("checksum", "metrics"):
        record.pop(key, None)
    (run / "run.json").write_text(json.dumps(record, indent=2))
    lines = (run / "metrics.csv").read_text().splitlines()
    (run / "metrics.csv").write_text("".join(line.rpartition(",")[0] + "\n" for line in lines))
    table = pq.read_table(run / "results.parquet")
    pq.write_table(table, run / "results.parquet")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = read_run(run)
    close([found])
    assert not {"results", "metrics", "agent"} & set(found.missing)
    assert len([one for one in said if "has no checksum" in str(one.message)]) == 1


# 6. Small files that claim much


def test_a_file_that_claims_many_episodes_is_refused_at_once(folder: Path) -> None:
    with h5py.File("logs.h5", "r+") as file:
        for name in list(file["episodes"]):
            del file[f"episodes/{name}"]
            file.create_dataset(
                f"episodes/{name}",
                (500_000_000,),
                dtype="i8",
                chunks=(1 << 16,),
                compression="gzip",
            )
    with pytest.raises(DataError, match="SEPT_OFFLINE_LIMIT_MB"):
        so.load_dataset("logs.h5")


def test_an_index_that_unpacks_to_more_than_the_limit_is_refused(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEPT_OFFLINE_LIMIT_MB", "16")
    assert command(*COLLECT, "-o", tmp_path / "x")[0] == 0
    path = tmp_path / "x" / "_manifest.json"
    stored = json.loads(path.read_text())
    stored.pop("sha256")
    packing, packed = zlib.compressobj(9), b""
    for _ in range(20):
        packed += packing.compress(bytes(1 << 20))
    stored["episodes"] = base64.b64encode(packed + packing.flush()).decode()
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    stored["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(stored, sort_keys=True, separators=(",", ":")))
    with pytest.raises(DataError, match="unpacks to more than"):
        so.load_dataset(tmp_path / "x")


def test_a_limit_can_be_raised_and_must_be_a_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sept_offline.limits import limit_bytes

    monkeypatch.setenv("SEPT_OFFLINE_LIMIT_MB", "1024")
    assert limit_bytes() == 1 << 30
    monkeypatch.setenv("SEPT_OFFLINE_LIMIT_MB", "much")
    with pytest.raises(SeptError, match="integer number of megabytes"):
        limit_bytes()


def test_a_probe_of_a_billion_steps_is_answered_at_once(folder: Path, command: Command) -> None:
    code, said = command("inspect", "logs.h5", "--probe-steps", "1000000000", "--quiet")
    assert code == 0 and "shorter than the probe's 1000000000 steps" in said


# 7. HDF5 that leads elsewhere, or holds something else


def change(kind: str, file: h5py.File, name: str, folder: Path) -> None:
    shape, values = file[name].shape, file[name][()]
    del file[name]
    if kind == "external link":
        with h5py.File(folder / "other.h5", "w") as other:
            other["x"] = values
        file[name] = h5py.ExternalLink("other.h5", "/x")
    elif kind == "soft link":
        file["elsewhere"] = values
        file[name] = h5py.SoftLink("/elsewhere")
    elif kind == "virtual":
        with h5py.File(folder / "other.h5", "w") as other:
            other["x"] = values
        layout = h5py.VirtualLayout(shape=shape, dtype=values.dtype)
        layout[...] = h5py.VirtualSource("other.h5", "x", shape=shape)
        file.create_virtual_dataset(name, layout)
    elif kind == "external storage":
        (folder / "raw").write_bytes(values.tobytes())
        place = [(str(folder / "raw"), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset(name, shape, dtype=values.dtype, external=place)
    elif kind == "group":
        file.create_group(name)
    elif kind == "reference":
        file.create_dataset(name, shape[:1], dtype=h5py.ref_dtype)
    elif kind == "scalar":
        file[name] = 1


@pytest.mark.parametrize("name", ["actions", "episodes/length", "privileged/values"])
@pytest.mark.parametrize(
    "kind",
    ["external link", "soft link", "virtual", "external storage", "group", "reference", "scalar"],
)
def test_what_is_not_an_array_of_the_file_is_refused_by_name(
    folder: Path, kind: str, name: str
) -> None:
    with h5py.File("logs.h5", "r+") as file:
        change(kind, file, name, folder)
    with pytest.raises(DataError, match=name.rpartition("/")[2]):
        so.load_dataset("logs.h5")
    assert not so.validate("logs.h5").ok


@pytest.mark.parametrize("kind", ["external link", "virtual", "group", "reference", "scalar"])
def test_an_import_follows_no_link_either(folder: Path, command: Command, kind: str) -> None:
    with h5py.File("d4rl.hdf5", "w") as file:
        file["observations"] = np.zeros((4, 2), np.float32)
        file["actions"] = np.array([0, 1, 0, 1])
        file["rewards"] = np.zeros(4)
        file["terminals"] = np.array([False, True, False, True])
        change(kind, file, "rewards", folder)
    code, said = command("import", "d4rl.hdf5", "-o", "new.h5", "--quiet")
    assert code == 2 and "rewards" in said and not (folder / "new.h5").exists()


# 8. One reader for validate and load_dataset


def test_validate_reads_the_index_that_load_dataset_goes_by(
    tmp_path: Path, command: Command
) -> None:
    from sept_offline.data.parquet import pack_index, unpack_index

    assert command(*COLLECT, "-o", tmp_path / "x")[0] == 0
    path = tmp_path / "x" / "_manifest.json"
    stored = json.loads(path.read_text())
    stored.pop("sha256")
    index = unpack_index(stored["episodes"])
    index.seed[:] = index.seed[::-1].copy()
    stored["episodes"] = pack_index(index)
    # the content hash is made right too: by the index that is stored
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    stored["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(stored, sort_keys=True, separators=(",", ":")))
    found = so.validate(tmp_path / "x")
    assert "index" in {problem.kind for problem in found.errors}


# A damaged record


@pytest.mark.parametrize(
    ("damage", "state"),
    [("flipped", "begun"), ("cut", "finished"), ("empty", "finished"), ("zeros", "begun")],
)
def test_restart_replaces_a_run_whose_record_is_damaged(
    folder: Path, command: Command, damage: str, state: str
) -> None:
    run = folder / "run" if state == "finished" else begin(folder)
    path = run / "run.json"
    content = path.read_bytes()
    damaged = {
        "flipped": content.replace(b'"seed": 0', b'"seed": 4'),
        "cut": content[: len(content) // 2],
        "empty": b"",
        "zeros": bytes(len(content)),
    }[damage]
    assert damaged != content
    path.write_bytes(damaged)
    fit = ("fit", "logs.h5", "--method", "avg", "--quiet", "-o", run.name, "--no-verdict")
    fit += ("--set", "control.updates=4", "--set", "control.hidden=[4]")
    code, said = command(*fit, "--resume")
    assert code == 2 and "run.json" in said and path.read_bytes() == damaged
    code, said = command(*fit, "--restart")
    assert code == 0, said
    assert so.load_agent(run).method == "avg" and not (run / "results.parquet").exists()


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("{}", None),
        ("[1]", "checkpoints"),
        ('{"name": "mine"}', "metrics.csv"),
        ("months of work", None),
        ("months of work", "metrics.csv"),
        ("", "checkpoints"),
        ("", "agent"),
    ],
)
def test_restart_leaves_a_record_alone_that_is_not_ours(
    folder: Path, command: Command, text: str, beside: str | None
) -> None:
    path = folder / "mine" / "run.json"
    path.parent.mkdir()
    path.write_text(text)
    if beside == "metrics.csv":
        (folder / "mine" / beside).write_text("loss,step\n0.5,1\n")
    elif beside is not None:
        name = "agent.json" if beside == "agent" else "0-control.safetensors"
        (folder / "mine" / beside).mkdir()
        (folder / "mine" / beside / name).write_text("months of work")
    before = {one: one.read_bytes() for one in (folder / "mine").rglob("*") if one.is_file()}
    code, said = command("fit", "logs.h5", "--method", "avg", "-o", "mine", "--restart", "--quiet")
    assert code == 2 and "run.json" in said
    assert all(one.read_bytes() == content for one, content in before.items())
