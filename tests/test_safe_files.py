import errno
import os
import threading

import pytest

from eigenmesh import safe_files
from eigenmesh.errors import FileNotWritten
from eigenmesh.safe_files import append_all, create_once, open_to_append, write_whole


@pytest.fixture
def full_disk(monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(safe_files.os, "fsync", refuse)


def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path, full_disk):
    file = tmp_path / "model.em"
    file.write_bytes(b"before")
    with pytest.raises(FileNotWritten, match="No space left.*make room"):
        write_whole(file, b"after" * 1000)
    with pytest.raises(FileNotWritten, match="No space left"):
        create_once(tmp_path / "site.key", b"secret")
    assert [(own.name, own.read_bytes()) for own in tmp_path.iterdir()] == [("model.em", b"before")]


def test_what_cannot_be_appended_whole_is_not_appended(tmp_path, full_disk):
    file = tmp_path / "log"
    file.write_bytes(b"one\n")
    with open_to_append(file) as log, pytest.raises(FileNotWritten, match="No space left"):
        append_all(log.fileno(), file, b"two\n", durable=True)
    assert file.read_bytes() == b"one\n"


@pytest.mark.parametrize("there", [True, False])
def test_no_link_is_followed(tmp_path, there):
    target, link = tmp_path / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"theirs")
    link.symlink_to(target)
    with pytest.raises(FileNotWritten, match="symbolic link"):
        write_whole(link, b"ours")
    with pytest.raises(FileNotWritten):
        open_to_append(link)
    create_once(link, b"ours")
    assert target.exists() == there
    assert not there or target.read_bytes() == b"theirs"


def test_modes_follow_the_umask_or_are_the_owners_alone(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "usual", b"")
        write_whole(tmp_path / "private", b"", private=True)
        create_once(tmp_path / "key", b"")
    finally:
        os.umask(before)
    modes = {own.name: own.stat().st_mode & 0o777 for own in tmp_path.iterdir()}
    assert modes == {"usual": 0o640, "private": 0o600, "key": 0o600}


def test_readers_see_the_old_file_or_the_new_one(tmp_path):
    file, contents = tmp_path / "file", [bytes([i]) * 50_000 for i in range(40)]
    write_whole(file, contents[0])
    sights, done = [], threading.Event()

    def look():
        while not done.is_set():
            sights.append(file.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for content in contents:
        write_whole(file, content, durable=False)
    done.set()
    reader.join(10)
    assert set(sights) <= set(contents)
    assert [own.name for own in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_folder_that_cannot_be_written_to_is_our_error(tmp_path, folder):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileNotWritten, match="cannot be written"):
        write_whole(tmp_path / folder / "x", b"")
    with pytest.raises(FileNotWritten, match="no regular file"):
        write_whole(tmp_path, b"")
