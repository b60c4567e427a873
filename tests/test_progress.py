import datetime
import types

import pytest

from tbnets import progress
from tbnets.training import loop


def test_a_log_gets_a_line_of_progress_every_30_seconds(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    with progress.progress_bar(40, "embedding", "photo", leave=True) as bar:
        for _ in range(40):
            now[0] += 2
            bar.update()
            bar.set_postfix_str("loss 1")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("|")[0] for line in lines] == [
        f"embedding:  {per_cent}%" for per_cent in (38, 75)
    ]
    assert [item for item in progress.progress_bar(2, "", "", iterable="ab")]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("started_at", [0, 2])
def test_remaining_time_does_not_count_the_epoch_that_compiles(started_at):
    state = types.SimpleNamespace(
        epoch=started_at, best_epoch=0, history=[], dev={"m": 0}
    )
    state.history = [{"seconds": 100.0}] * started_at
    run = types.SimpleNamespace(
        settings=types.SimpleNamespace(epochs=10),
        state=state,
        task=types.SimpleNamespace(best_metric="m"),
    )
    lines = []
    for seconds in (100.0, 2.0, 2.0):
        state.epoch += 1
        state.history.append({"train/total_loss": 0.0, "seconds": seconds})
        lines.append(loop._epoch_line(run, started_at))
    assert "left" not in lines[0]
    left = datetime.timedelta(seconds=2 * (10 - state.epoch))
    assert lines[2].endswith(f"left {left}")
