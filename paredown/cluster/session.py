"""A Ray to work with: one that runs already, or one on this machine for as long as it is needed."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from paredown.errors import BadSetting, ClusterFailed

LOCAL, FOUND = "local", "auto"
SECONDS = 10  # to reach a cluster
NEEDED = "prediction on a cluster needs Ray: pip install 'paredown[ray]'"
# Read by Ray when it is imported: no usage reports; loopback alone, as on systems without clusters; one try to join.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
LOOPBACK, ONE_TRY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}, {"RAY_NUM_REDIS_GET_RETRIES": "1"}


def import_ray() -> Any:
    """Ray with Ray Data."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise BadSetting(NEEDED) from None
    return ray


def reach(address: str) -> Any:
    """Ray, where there is something to join at the address; else an error within seconds."""
    for name, value in (QUIET | (LOOPBACK if address == LOCAL else ONE_TRY)).items():
        os.environ.setdefault(name, value)
    ray = import_ray()
    if address in (LOCAL, FOUND):
        return ray
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()) or "/" in host:
        raise BadSetting(f"{address!r} is no address of a Ray: local, auto or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ClusterFailed(f"no Ray answers at {address}: {error}") from None
    return ray


@contextmanager
def joined(address: str, workers: int | None = None) -> Iterator[Any]:
    """Ray at an address: `local` starts one here, `auto` finds one that this machine is part of. A process that has
    joined one already stays with it. What Ray has to say goes to standard error."""
    ray = reach(address)
    with redirect_stdout(sys.stderr):
        if ray.is_initialized():
            yield ray
            return
        _join(ray, address, workers)
        try:
            yield ray
        finally:
            ray.shutdown()


def _join(ray: Any, address: str, workers: int | None) -> None:
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        cpus = max(os.cpu_count() or 1, workers or 1) + 1  # one for what reads the rows
        settings |= {"num_cpus": cpus, "include_dashboard": False}
    for name in ("ray", "ray.data"):  # it reports every step to people, who see a bar of ours
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        ray.init(address, **settings)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        if "InvalidAuthToken" in str(error.__cause__):
            told = "RAY_AUTH_MODE=token, and its token in ~/.ray/auth_token or RAY_AUTH_TOKEN_PATH"
            raise ClusterFailed(f"the Ray at {address} lets in who has its token: {told}") from None
        raise ClusterFailed(f"no Ray answers at {address}: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
