"""What a device can do and how busy its host is, read before anything is timed; ceilings come from the user's cache where they are known."""

from pairbench.execute.parent.pool import WorkerContext, Workers
from pairbench.execute.parent.scout import probe_in
from pairbench.model.environment import Device, Environment
from pairbench.model.load import HostLoad
from pairbench.store.ceilings import KeptCeilings
from pairbench.workflow.host_watch import HostWatch


def probe_device(
    context: WorkerContext, device: Device, watch: HostWatch, kept: KeptCeilings | None = None
) -> tuple[Environment, HostLoad]:
    """Return a device's environment and how busy its host is.

    Args:
        context: What the workers share.
        device: Where.
        watch: Watches the host; it says what computes beside.
        kept: Ceilings of earlier runs; the user's where not given.

    Raises:
        PairbenchError: the device cannot be used at all.
    """
    kept = kept or KeptCeilings()
    with Workers(context, device) as workers:
        bare = probe_in(workers, device, ceilings=False)
        known = kept.put_in(bare)
        environment = known or probe_in(workers, device)
    load = watch.begin(environment)
    alone = not environment.rest["observed"].get("foreign_processes")
    if known is None and alone and load.disturbs(device.kind) is None:
        kept.keep(environment)
    return environment, load
