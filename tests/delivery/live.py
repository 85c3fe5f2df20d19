"""Nodes of the counting run as threads of the test, so that a test can look into them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from edge_sdk.contract.method import Role
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.engine import Assembly, MessageCodec
from edge_sdk.live.loop.runtime import Runtime
from tests.delivery import roles
from tests.delivery.nodes import QUICK as QUICK
from tests.delivery.nodes import make_runtime


class Live:
    """A node on a thread: runs inside a `with`, is stopped at its end and reports what it raised."""

    def __init__(self, node: Runtime):
        self.node, self.error = node, list[BaseException]()

    def __enter__(self) -> Runtime:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self.node

    def run(self) -> None:
        try:
            self.node.run()
        except BaseException as e:
            self.error.append(e)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.node.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()
        if self.error and error is None:
            raise self.error[0]


class Net:
    """Makes nodes of one counting run below a directory."""

    def __init__(self, base: Path, url: str, **common: Any):
        self.base, self.url, self.common = base, url, QUICK | common
        self.told: list[tuple[int, roles.Done]] = []

    def node(self, name: str, role: Role, parent: str | None, children: tuple[str, ...], **options: Any) -> Runtime:
        given = options.pop("given", {}) | {"sizes": dict.fromkeys(children, 1)}
        policy = options.pop("policy", None)

        def assemble(run: Run) -> Assembly:
            return roles.assembly(role, run, policy, **given)

        settings = {"directory": self.base / name, "broker": self.url, "assemble": assemble} | self.common | options
        return make_runtime(name, parent=parent, children=children, **settings)

    def aggregator(self, *children: str, rounds: int = 10**6, size: int = 4, **options: Any) -> Runtime:
        run = Run(id="count", method="count", rounds=rounds)
        options |= {"run": run, "told": lambda n, m: self.told.append((n, m))}
        return self.node("agg", roles.AGGREGATOR, None, children, given={"size": size}, **options)

    def hospital(self, name: str, *children: str, **options: Any) -> Runtime:
        return self.node(name, roles.HOSPITAL, "agg", children, **options)

    def device(self, name: str, parent: str, work: Callable[[int], None] | None = None, **options: Any) -> Runtime:
        return self.node(name, roles.DEVICE, parent, (), given={"work": work} if work else {}, **options)

    @property
    def codec(self) -> MessageCodec:
        """Codec of what the aggregator saves."""
        return roles.assembly(roles.AGGREGATOR, Run(id="count", method="count")).records

    @property
    def rounds(self) -> int:
        return self.told[-1][1].round if self.told else 0


def playing(*nodes: Runtime) -> ExitStack:
    """Run nodes on threads, in a `with`."""
    stack = ExitStack()
    for node in nodes:
        stack.enter_context(Live(node))
    return stack
