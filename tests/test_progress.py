from tbnets import progress


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
