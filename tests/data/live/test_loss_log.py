"""What a device says of samples that it loses: at once, then once a minute, and all of it in the end."""

from __future__ import annotations

import logging

import pytest

from edge_sdk.data.live.loss_log import LossLog

FULL, FAST = "could not be saved: no room", "are lost: too fast"


def test_losses_are_said_at_once_then_once_a_minute_and_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    losses = LossLog("w", logging.getLogger("auscult.w"), clock=lambda: now[0])
    for second in range(100):
        now[0] += 1
        losses.note(52, FULL, OSError(28, "no room"))
        losses.note(1 if second == 3 else 0, FAST)
    losses.close()
    said = [f"w: {count} samples {cause}" for count, cause in ((52, FULL), (1, FAST), (3120, FULL), (2028, FULL))]
    assert caplog.messages == said and not any(record.exc_info for record in caplog.records)


def test_a_fault_that_is_no_disks_is_shown_where_it_was_raised(caplog: pytest.LogCaptureFixture) -> None:
    LossLog("w", logging.getLogger("auscult.w")).note(2, "could not be saved: 'x'", KeyError("x"))
    assert caplog.records[0].exc_info is not None
