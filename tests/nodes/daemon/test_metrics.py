"""The Prometheus endpoint."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from edge_sdk.nodes.daemon.prometheus import Endpoint
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing


def test_a_node_is_read_while_it_works(tmp_path: Path, quick: LocalBroker) -> None:
    net = Net(tmp_path, quick.url)
    aggregator = net.aggregator("a", rounds=3)
    with playing(aggregator, net.device("a", "agg")), Endpoint(aggregator) as endpoint:
        eventually(lambda: net.rounds == 3)
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/")
        missing.value.close()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert int(values['auscult_messages_in_total{node="agg",of="a"}']) >= 3
    assert values['auscult_children_here{node="agg"}'] == "1"
    assert "# TYPE auscult_bytes_out_total counter" in lines
