"""How Ray Serve chooses among the replicas of `serve_app`: by its default, but a replica never chooses itself."""

from __future__ import annotations

from ray import serve
from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter
from ray.serve.exceptions import RayServeException
from ray.serve.request_router import RunningReplica


class OthersRouter(PowerOfTwoChoicesRequestRouter):  # type: ignore[misc]
    """Serve's default router. In a replica of the deployment it leaves that replica out.

    A replica asks its own deployment only where its server has ended, see `FormworkReplica`.
    """

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        try:
            own = serve.get_replica_context().replica_id
        except RayServeException:
            # In the proxy, or in a driver.
            own = None
        super().update_replicas([replica for replica in replicas if replica.replica_id != own])
