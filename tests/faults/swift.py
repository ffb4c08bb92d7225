"""OpenStack Swift on this machine, with its S3 interface: an object store that was made to be one, of Debian's packages.

One server each for accounts, containers and objects with one copy of all, and the proxy with `s3api` in front, which wants a memcached. Buckets and objects lie in a temporary
folder, whose file system needs extended attributes. Nothing of the system's own configuration is touched; `/etc/swift/swift.conf` is read.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.ports import running

NAME = "swift"
PACKAGES = "swift-proxy, swift-account, swift-container, swift-object and memcached"
_COMMANDS = (
    "swift-proxy-server",
    "swift-account-server",
    "swift-container-server",
    "swift-object-server",
    "swift-ring-builder",
    "memcached",
)
_KINDS = ("account", "container", "object")

_BACKEND = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
log_level = WARNING
fallocate_reserve = 0
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
log_level = WARNING
[pipeline:main]
pipeline = catch_errors listing_formats cache s3api tempauth copy slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{cache}
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_tests_tests = tests .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
"""


def missing() -> str:
    """Return what is not installed, and what brings it; nothing where all is there."""
    name = next((name for name in _COMMANDS if shutil.which(name) is None), None)
    return f"there is no {name}, expected Debian's packages {PACKAGES}" if name else ""


@contextlib.contextmanager
def all_in_one(log: Path, ports: Sequence[int]) -> Iterator[int]:
    """Run an empty store, and give the port of its S3 interface."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        output = stack.enter_context(log.open("wb"))
        user = pwd.getpwuid(os.getuid()).pw_name
        (folder / "devices" / "disk").mkdir(parents=True)
        for kind, port in zip(_KINDS, ports[1:4], strict=True):
            (folder / f"{kind}-server.conf").write_text(_BACKEND.format(port=port, user=user, folder=folder, kind=kind))
            ring = [str(folder / f"{kind}.builder")]
            for words in (["create", "4", "1", "1"], ["add", f"r1z1-127.0.0.1:{port}/disk", "1"], ["rebalance"]):
                subprocess.run(["swift-ring-builder", *ring, *words], check=True, stdout=output, stderr=output)
        proxy = _PROXY.format(port=ports[0], user=user, folder=folder, cache=ports[4])
        (folder / "proxy-server.conf").write_text(proxy)
        memcached = ["memcached", "-l", "127.0.0.1", "-p", str(ports[4]), "-u", user]
        stack.enter_context(running(memcached, ports[4], output))
        # Without what leads the system's Python astray.
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        for kind, port in zip((*_KINDS, "proxy"), (*ports[1:4], ports[0]), strict=True):
            command = [f"swift-{kind}-server", str(folder / f"{kind}-server.conf"), "--verbose"]
            stack.enter_context(running(command, port, output, environment))
        yield ports[0]
