"""A Redis server in a container: which image, on which address, and what is missing where there is none.

Where no image can be pulled, one is made of the packaged server and the libraries that it needs.
"""

from __future__ import annotations

import gc
import io
import os
import re
import socket
import subprocess
import tarfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker  # type: ignore[import-untyped]
from docker.errors import DockerException, ImageNotFound  # type: ignore[import-untyped]
from testcontainers.community.redis import RedisContainer
from testcontainers.core.config import ConnectionMode, testcontainers_config

from agui_relay.embedded.server import packaged_server

IMAGE = os.environ.get("AGUI_RELAY_TEST_IMAGE", "redis:8-alpine")
"""Taken where it is there or can be pulled."""
_PACKAGED = ("agui-relay-test-redis", "packaged")


def missing() -> str | None:
    """Return why there can be no container, and what to do about it; None when there can."""
    with warnings.catch_warnings():
        # A connection that failed leaves its socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        error = _failure()
        gc.collect()
    if error is None:
        return None
    return (
        "no Docker daemon answers: start one, or set DOCKER_HOST; as root on Debian `CI=true .ci/with-docker COMMAND`"
        f" installs and starts its own ({error})"
    )


def _failure() -> str | None:
    try:
        with closing(docker.from_env(timeout=10)) as client:
            client.ping()
    except DockerException as error:
        return str(error)
    return None


@contextmanager
def container_url() -> Iterator[str]:
    """Run a Redis container as long as the block lasts; gives the URL of its server."""
    with closing(docker.from_env(timeout=60)) as client:
        image = IMAGE
        if not _obtainable(client, image):
            image = _packaged_image(client)
        if not testcontainers_config.ryuk_disabled and not _obtainable(client, testcontainers_config.ryuk_image):
            # The container that removes what a killed test run leaves behind cannot be had.
            testcontainers_config.ryuk_disabled = True
    if testcontainers_config.connection_mode_override is None and _is_daemon_here():
        # Inside of a container testcontainers takes the daemon for its host's.
        testcontainers_config.connection_mode_override = ConnectionMode.docker_host
        testcontainers_config.tc_host_override = testcontainers_config.tc_host_override or "127.0.0.1"
    testcontainers_config.max_tries = min(testcontainers_config.max_tries, 20)
    with RedisContainer(image) as container:
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"


def _obtainable(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except ImageNotFound:
        try:
            client.images.pull(image)
        except DockerException:
            return False
    return True


def _packaged_image(client: docker.DockerClient) -> str:
    name, tag = _PACKAGED
    server = packaged_server()
    linked = subprocess.run(["ldd", server], capture_output=True, text=True, check=True).stdout
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for folder in ("data", "tmp"):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
                archive.addfile(entry)
            archive.add(server, "usr/local/bin/redis-server")
            for library in re.findall(r"(/\S+) \(0x", linked):
                archive.add(Path(library).resolve(), library.lstrip("/"))
        client.api.import_image_from_data(
            buffer.getvalue(),
            repository=name,
            tag=tag,
            changes=['CMD ["/usr/local/bin/redis-server", "--protected-mode", "no"]', "EXPOSE 6379", "WORKDIR /data"],
        )
    return f"{name}:{tag}"


def _is_daemon_here() -> bool:
    """Whether the daemon is a process that this one can see, so that its ports are those of this machine."""
    path = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    option = getattr(socket, "SO_PEERCRED", None)
    if not path.startswith("unix://") or option is None:
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path.removeprefix("unix://"))
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, option, 4), "little") != 0
