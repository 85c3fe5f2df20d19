"""Further certificates of an aggregator, for runs beside each other: what the broker's access list says of them."""

from __future__ import annotations

from pathlib import Path

from edge_sdk.tools.credentials.broker_files import write_access
from edge_sdk.tools.credentials.site import Site


def test_a_further_certificate_of_the_aggregator_may_do_what_it_may(tmp_path: Path) -> None:
    """For a run beside another one; who has enrolled under such a name may not."""
    site = Site(
        host="127.0.0.1", aggregator="cloud", hospitals=("north", "cloud-run-2"), enrolled=("cloud/cloud-run-3",)
    )
    write_access(tmp_path / "acl", site)
    sections = {}
    for section in (tmp_path / "acl").read_text().split("\nuser ")[1:]:
        name, _, topics = section.partition("\n")
        sections[name] = sections.get(name, "") + topics
    for topic in ("read auscult/v1/cloud/+/up/+", "write auscult/v1/cloud/+/down/+"):
        assert [name for name in sections if f"topic {topic}\n" in sections[name]] == ["cloud", "cloud-run-2"]
