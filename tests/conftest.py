"""The order of the tests, margins of what they learn, and a server that speaks S3."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests import disk
from tests.margins import Margins, append

# Two workers with two threads each would wait for one another on two cores: most of this library
# asks for one thread by itself, and tests of that ask for two before. Read when torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
disk.do_not_wait()

WAITING = ("report/test_browser", "engines/test_ray", "test_notebooks", "test_site")
"""Files that mostly wait for other programs: where there are three workers, the third has them."""
FIRST = (
    "methods/test_methods",
    "test_docs",
    *WAITING,
    "methods/test_fit",
    "demarcate/test_demarcate",
    "deploy/test_export",
    "control/test_learner",
    "report/test_page",
    "methods/test_stacking",
    "latent/test_latent",
    "own_family/test_cartpole",
    "data/test_filesystems",
    "cli/test_commands",
    "test_learning",
    "methods/test_verdict",
    "bench/test_figures",
    "probe/test_probe",
    "methods/test_continuous",
    "collect/test_collect",
    "ope/test_judging",
    "methods/test_choices",
    "bench/test_bench",
    "collect/test_boxes",
    "agent/test_agent",
    "test_csv_to_agent",
    "collect/test_expert",
    "collect/test_plans",
    "dynamics/test_model",
    "safety/test_fuzz",
    "importing/test_command",
    "data/test_writing",
    "engines/test_local",
    "safety/test_failed_writes",
    "safety/test_high",
    "methods/test_kill",
)
"""Files that take longest, the longest first: two workers that begin with them end together."""
LONGEST = (
    "test_learning.py::test_every_family_is_learned_by_its_recipe[hiv]",
    "test_learning.py::test_no_family_is_learned_by_control_that_ignores_the_latent[hiv]",
    "test_learning.py::test_every_family_is_learned_by_its_recipe[acrobot]",
    "test_learning.py::test_no_family_is_learned_by_control_that_ignores_the_latent[acrobot]",
    "test_failed_writes.py::test_every_failure[bench]",
    "test_bench.py::test_killed_with_two_workers",
    "test_fuzz.py::test_a_hundred_thousand_inputs",
    "test_kills.py::test_thirty_kills[bench]",
    "test_learning.py",
)
"""The same of long tests, each of which goes to the worker that is free."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("learning")
    group.addoption(
        "--training-seed", type=int, default=0, help="seed with which learning tests train"
    )
    group.addoption(
        "--margins", type=Path, metavar="FILE", help="append each learning test's margins to FILE"
    )


# First, so that `-m learning` finds the marker.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark learning tests; put `FIRST` and `LONGEST` before all others, each as it stands."""
    for item in items:
        if "margin" in getattr(item, "fixturenames", ()):
            item.add_marker("learning")
        if "recipe" in getattr(item, "fixturenames", ()):
            # its logs take minutes to collect
            item.add_marker(pytest.mark.xdist_group(item.name.partition("[")[2]))
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        if item.get_closest_marker("long"):
            found = (n for n, part in enumerate(LONGEST) if part in item.nodeid)
            return next(found, len(LONGEST))
        name = item.path.relative_to(here).with_suffix("").as_posix()
        return FIRST.index(name) if name in FIRST else len(FIRST)

    items.sort(key=place)


class Scheduler(LoadFileScheduling):
    """A file's tests on one worker; `WAITING` on the third, which then ends.

    Two workers compute on two cores, and the third waits beside them.
    """

    def _next(self, node: WorkerController) -> str | None:
        """The file that a worker takes next; any, where the third worker has gone."""
        if len(self.nodes) < 3:
            return next(iter(self.workqueue), None)
        third = node is self.nodes[2]
        waiting = tuple(f"{name}.py" for name in WAITING)
        return next((name for name in self.workqueue if name.endswith(waiting) == third), None)

    def _assign_work_unit(self, node: WorkerController) -> None:
        name = self._next(node)
        if name is None:
            node.shutdown()
        else:
            self.workqueue.move_to_end(name, last=False)
            super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler | None:
    if config.getoption("numprocesses") == 3 and config.getoption("dist") == "loadfile":
        return Scheduler(config, log)
    return None


def pytest_collection_finish() -> None:
    """Whatever is loaded by now stays: nobody need look through it for garbage again and again.

    What a test leaves is little, and is looked for less often than every 700 objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    path: Path | None = item.config.getoption("--margins")
    # a set-up that fails has trained in vain: that is an outcome too
    decided = report.when == "call" or (report.when == "setup" and report.failed)
    if path is not None and decided and item.get_closest_marker("learning"):
        margins: Any = getattr(item, "funcargs", {}).get("margin", Margins())
        append(
            path,
            test=item.nodeid,
            seed=item.config.getoption("--training-seed"),
            outcome=report.outcome,
            seconds=report.duration,
            records=margins.records,
        )
    return report


@pytest.fixture(scope="session")
def training_seed(pytestconfig: pytest.Config) -> int:
    """The seed of everything that a learning test trains; `benchmarks/margins.py` varies it."""
    seed: int = pytestconfig.getoption("--training-seed")
    return seed


@pytest.fixture
def margin() -> Margins:
    """Called instead of `assert` on a learned quantity; whoever asks for it is marked `learning`.

    margin("steps", steps, below=14)
    """
    return Margins()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URI of a bucket on a server of the module's own; the environment leads there."""
    server_module = pytest.importorskip("moto.server")
    import pyarrow.fs as pafs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        system = pafs.S3FileSystem(
            endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True
        )
        system.create_dir("logs")
        yield "s3://logs"
    server.stop()
