"""Tests of how a work is cut."""

import pytest

from tbnets.data.store.joining import take_share


@pytest.mark.parametrize("count", [0, 1, 5, 8])
@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_shares_follow_each_other_at_multiples_of_the_step(count, step, of):
    keys, ends = [f"{i}.jpg" for i in range(count)], [0]
    for number in range(1, of + 1):
        rows, told = take_share(f"{number}/{of}", keys, step, batch_size=4)
        assert rows.start == ends[-1] and rows.start % step == 0
        ends.append(rows.stop)
        share = told["share"]
        assert (share["number"], share["of"]) == (number, of)
        assert share["items"] == count and share["batch_size"] == 4
    assert ends[-1] >= count and keys[: ends[-1]] == keys
    sizes = [b - a for a, b in zip(ends, ends[1:])]
    assert max(sizes) - min(sizes) <= step


def test_no_share_is_all():
    rows, told = take_share("", ["a", "b"], 1, batch_size=4)
    assert ["a", "b"][rows] == ["a", "b"] and told == {}


def test_other_items_or_another_order_are_another_work():
    def work(*keys):
        return take_share("1/2", keys)[1]["share"]["items_sha256"]

    assert len({work("a", "b"), work("b", "a"), work("a,", "b")}) == 3


@pytest.mark.parametrize(
    "shard", ["0/2", "3/2", "1", "/", "1/0", "-1/2", "a/b"]
)
def test_what_is_no_share_is_told(shard):
    with pytest.raises(ValueError, match=f"`shard` must be I/N.*={shard}[.]"):
        take_share(shard, ["a"])
