"""Files are replaced whole or stay as they were."""

import json
import os
import stat

import pytest

from vlm_decisions.files.atomic import replacing, write_json, write_text


def test_a_new_file_can_be_read_by_others(tmp_path):
    write_text(tmp_path / "a.txt", "für")
    assert (tmp_path / "a.txt").read_bytes() == "für".encode()
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644
    write_json(str(tmp_path / "a.json"), {"x": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, None]}
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.txt"]


def test_links_and_permissions_stay(tmp_path):
    (tmp_path / "deep").mkdir()
    real, link = tmp_path / "deep" / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_a_write_that_fails_changes_nothing(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(type(error)), replacing(path) as file:
        file.write(b"new")
        raise error
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.bin"]
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "none" / "a.bin"):
        pass
