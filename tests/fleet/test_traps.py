import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

distributed = pytest.importorskip("distributed", reason="the extra `fleet` brings the queue; `nox -s fleet` has it")

# Without the extra there is nothing to test.
from pairbench.features.fleet import worker as worker_room  # noqa: E402
from pairbench.features.fleet.dask import NO_HTTP, configured  # noqa: E402
from tests.fleet.fleet import offer  # noqa: E402

Scene = Callable[[Any, Any], Coroutine[Any, Any, None]]


def play(scene: Scene, **settings: Any) -> None:
    """Give a scene a scheduler and a client, under our settings and then some."""
    import dask

    async def whole() -> None:
        async with (
            distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address=NO_HTTP) as scheduler,
            distributed.Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            await scene(scheduler, client)

    with configured(), dask.config.set(settings):
        asyncio.run(whole())


def worker(scheduler: Any, name: str, **resources: float) -> Any:
    return distributed.Worker(
        scheduler.address,
        host="127.0.0.1",
        name=name,
        nthreads=1,
        memory_limit=0,
        resources={"HOST": 1, **resources},
        dashboard_address=NO_HTTP,
    )


async def ended(future: Any) -> None:
    while future.status == "pending":
        await asyncio.sleep(0.01)


def echo(text: str) -> str:
    return text


def test_a_death_comes_back_at_once_whatever_the_retries() -> None:
    async def scene(scheduler: Any, client: Any) -> None:
        async with worker(scheduler, "a") as one:
            future = client.submit(asyncio.sleep, 60, retries=10, resources={"HOST": 1}, pure=False)
            while not one.state.executing_count and not one.state.long_running:
                await asyncio.sleep(0.01)
            await scheduler.remove_worker(one.address, stimulus_id="dead", close=False)
            await ended(future)
            assert type(await future.exception()).__name__ == "KilledWorker"

    play(scene)


def test_a_device_that_is_gone_is_not_waited_for_forever() -> None:
    async def scene(scheduler: Any, client: Any) -> None:
        async with worker(scheduler, "a"):
            future = client.submit(echo, "{}", resources={"GPU-1": 1}, pure=False)
            await ended(future)
            assert type(await future.exception()).__name__ == "NoValidWorkerError"

    play(scene, **{"distributed.scheduler.no-workers-timeout": "500ms"})


def test_units_with_resources_pile_up_on_a_worker_so_it_is_given_one_at_a_time() -> None:
    """Dask sends all of them at once; `drive` therefore holds the others back."""

    async def scene(scheduler: Any, client: Any) -> None:
        async with worker(scheduler, "a") as one:
            futures = [client.submit(asyncio.sleep, 60, resources={"HOST": 1}, pure=False) for _ in range(5)]
            while len(scheduler.workers[one.address].processing) < 5:
                await asyncio.sleep(0.01)
            await client.cancel(futures, force=True)

    play(scene)


def test_nothing_is_stolen() -> None:
    async def scene(scheduler: Any, client: Any) -> None:
        async with worker(scheduler, "a") as one, worker(scheduler, "b"):
            where = {"workers": [one.address], "allow_other_workers": True, "resources": {"HOST": 1}}
            futures = [client.submit(asyncio.sleep, 0.3, pure=False, **where) for _ in range(5)]
            done = await client.who_has(await client.gather(futures) and futures)
            assert {address for addresses in done.values() for address in addresses} == {one.address}

    play(scene)


def test_a_text_of_ours_is_never_taken_for_a_key() -> None:
    async def scene(scheduler: Any, client: Any) -> None:
        async with worker(scheduler, "a"):
            text = '{"unit": {}}'
            first = client.submit(echo, "the result", key="pairbench-0-1", pure=False)
            await first
            assert await client.submit(echo, text, key="pairbench-0-2", pure=False) == text
            # The same key again is answered from what is there, so that each unit has a new one.
            assert await client.submit(echo, text, key="pairbench-0-1", pure=False) == "the result"

    play(scene)


def test_a_worker_that_comes_back_has_another_name(tmp_path: Path) -> None:
    gpu = offer(selector="cuda:1")

    async def scene(scheduler: Any, client: Any) -> None:
        where = (scheduler.address, tmp_path)
        ours = worker_room._Worker("host cuda:1", (gpu,), *where, lambda _: None, python="python", watches=False)
        async with ours._make(0) as one, ours._make(1) as other:
            assert one.name != other.name
            assert one.state.total_resources == {"HOST": 1.0, "GPU-1": 1.0, "nvidia-h200": 1.0, "cuda": 1.0}
            assert (one.http_server.address, scheduler.http_server.address) == ("127.0.0.1", "127.0.0.1")
            assert one.address.startswith("tcp://127.0.0.1:")
            known = client.scheduler_info(n_workers=-1)["workers"]
            known = known or (await client.scheduler.identity(n_workers=-1))["workers"]
            (host, _) = worker_room.hosts_of(dict(known))
            assert (host.name, host.offers, host.held_up) == ("host cuda:1", (gpu,), None)

    play(scene)


def test_a_busy_host_says_so_and_is_given_no_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = offer("cpu-here", kind="cpu", model="some-cpu", selector="cpu")
    said: list[str] = []
    monkeypatch.setattr(worker_room, "_WATCH_S", 0.05)
    busy = "3 of 4 cores are busy with other work"
    monkeypatch.setattr(worker_room, "other_work", lambda *_: busy if not said else None)

    async def scene(scheduler: Any, client: Any) -> None:
        where = (scheduler.address, tmp_path)
        ours = worker_room._Worker("here", (cpu,), *where, said.append, python="python", watches=True)
        async with ours._make(0) as one:
            looking = asyncio.ensure_future(ours._look(one))
            while one.status.name != "paused":
                await asyncio.sleep(0.01)
            assert said == [f"here: {busy}; it takes no unit"]
            future = client.submit(echo, "{}", resources={"HOST": 1}, pure=False)
            while one.status.name != "running":
                assert future.status == "pending"
                await asyncio.sleep(0.01)
            assert await future == "{}"
            assert said[1:] == ["here takes units again"]
            looking.cancel()

    play(scene)
