from pathlib import Path

from tests.support.folders import texts


def test_a_file_that_goes_after_the_listing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "stays.json").write_text("{}")
    (tmp_path / "other.txt").write_text("not asked for")
    # A link to nothing is listed and cannot be read: what a reader sees of a file that was removed meanwhile.
    (tmp_path / "gone.json").symlink_to(tmp_path / "removed")
    assert texts(tmp_path) == {"stays": "{}"}
