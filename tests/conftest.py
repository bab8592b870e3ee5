"""The order of the tests, and what those of several folders need: a server that speaks S3."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

FIRST = (
    "test_docs",
    "report/test_browser",
    "bench/test_bench",
    "methods/test_methods",
    "test_site",
    "demarcate/test_demarcate",
    "test_learning",
    "test_notebooks",
    "methods/test_fit",
    "collect/test_ray",
    "report/test_page",
    "collect/test_kill",
    "test_results_page",
    "own_family/test_cartpole",
    "methods/test_kill",
    "test_csv_to_agent",
)
"""Files that take longest, the longest first: two workers that begin with them end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By file, those of `FIRST` before all others; within a file nothing changes."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(here).with_suffix("").as_posix()
        return FIRST.index(name) if name in FIRST else len(FIRST)

    items.sort(key=place)


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
