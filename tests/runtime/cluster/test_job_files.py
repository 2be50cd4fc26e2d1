"""Files of jobs in a worker: only what was announced, only below its folder, and no more than the cache may keep."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.errors import ClusterError
from flowrun.runtime.cluster import job_files as module
from flowrun.runtime.cluster.job_files import FileCache, JobFiles, job_files, users_cache
from flowrun.runtime.cluster_messages import JobFile


class Fetched:
    """Gives files as a job manager does, and counts."""

    def __init__(self, files: JobFiles) -> None:
        self.files = files
        self.digests: list[str] = []

    def __call__(self, digest: str) -> bytes:
        self.digests.append(digest)
        return self.files.read_file(digest)


FILES = job_files({"a.py": b"A = 1\n", "pack/b.py": b"B = 2\n", "same.py": b"A = 1\n"})


def test_files_are_laid_out_and_fetched_once(tmp_path: Path) -> None:
    cache, fetch = FileCache(tmp_path / "cache"), Fetched(FILES)
    first, second = cache.lay_out(FILES.files, fetch), cache.lay_out(FILES.files, fetch)
    assert first != second
    assert (second / "pack" / "b.py").read_bytes() == b"B = 2\n"
    assert len(fetch.digests) == 2, "what is the same is fetched once"
    assert len(FileCache(tmp_path / "cache").lay_out(FILES.files, fetch).parts) == len(first.parts)
    assert len(fetch.digests) == 2, "processes share the cache"
    for place in (cache.folder, first, *cache.folder.iterdir(), first / "a.py"):
        assert not place.stat().st_mode & 0o077, place


@pytest.mark.parametrize("content", [b"", b"A = 2\n", b"A = 1\n" * 1000], ids=["empty", "other", "longer"])
def test_content_that_was_not_announced_is_refused_and_not_kept(tmp_path: Path, content: bytes) -> None:
    cache = FileCache(tmp_path)
    with pytest.raises(ClusterError, match=r"the content of a\.py is refused"):
        cache.lay_out(FILES.files[:1], lambda _: content)
    assert not list(cache.folder.iterdir())


@pytest.mark.parametrize(
    "path",
    [
        "../a.py",
        "/etc/a.py",
        "a/../../b.py",
        "a//b.py",
        "./a.py",
        "",
        "a.txt",
        ".bashrc",
        "a\\b.py",
        "a\n.py",
        "a\0.py",
        "x" * 300 + ".py",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    hostile = replace(FILES.files[0], path=path)
    with pytest.raises(ClusterError, match="is no module below the pipeline's folder"):
        FileCache(tmp_path).lay_out((hostile,), Fetched(FILES))


@pytest.mark.parametrize("digest", ["", "../../x", "A" * 64, "0" * 63])
def test_a_digest_that_is_none_is_refused(tmp_path: Path, digest: str) -> None:
    with pytest.raises(ClusterError, match="refused"):
        FileCache(tmp_path).lay_out((replace(FILES.files[0], digest=digest),), lambda _: b"")


@pytest.mark.parametrize(
    "files",
    [
        (JobFile("a.py", "0" * 64, module.MOST_FILE_BYTES + 1),),
        (JobFile("a.py", "0" * 64, -1),),
        tuple(JobFile(f"a{n}.py", "0" * 64, module.MOST_FILE_BYTES) for n in range(5)),
        tuple(JobFile(f"a{n}.py", "0" * 64, 1) for n in range(module.MOST_FILES + 1)),
        (FILES.files[0], FILES.files[0]),
    ],
    ids=["large", "negative", "large together", "many", "twice"],
)
def test_what_is_too_much_is_refused_before_anything_is_fetched(tmp_path: Path, files: tuple[JobFile, ...]) -> None:
    fetch = Fetched(FILES)
    with pytest.raises(ClusterError):
        FileCache(tmp_path).lay_out(files, fetch)
    assert not fetch.digests


def test_a_file_and_a_folder_of_one_name_are_an_error(tmp_path: Path) -> None:
    both = job_files({"a.py": b"A = 1\n", "a.py/b.py": b"B = 2\n"})
    with pytest.raises(ClusterError, match="cannot be written"):
        FileCache(tmp_path).lay_out(both.files, Fetched(both))


def test_the_job_manager_gives_files_of_the_job_only() -> None:
    with pytest.raises(ClusterError, match="the job has no such file"):
        FILES.read_file("0" * 64)


def test_what_is_damaged_or_a_link_in_the_cache_is_fetched_again(tmp_path: Path) -> None:
    cache, fetch = FileCache(tmp_path / "cache"), Fetched(FILES)
    one = FILES.files[0]
    cache.content(one, fetch)
    (cache.folder / one.digest).write_bytes(b"A = 3\n")
    assert cache.content(one, fetch) == b"A = 1\n"
    (tmp_path / "elsewhere").write_bytes(b"A = 1\n")
    (cache.folder / one.digest).unlink()
    (cache.folder / one.digest).symlink_to(tmp_path / "elsewhere")
    assert cache.content(one, fetch) == b"A = 1\n"
    assert len(fetch.digests) == 3
    assert not (cache.folder / one.digest).is_symlink()


def test_the_cache_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    many = job_files({f"m{n}.py": b"%03d" % n * 100 for n in range(20)})
    cache, fetch = FileCache(tmp_path, most_bytes=1000), Fetched(many)
    for age, file in enumerate(many.files):
        cache.content(file, fetch)
        os.utime(cache.folder / file.digest, (1_000_000 + age, 1_000_000 + age))
        os.utime(cache.folder / many.files[0].digest)
    kept = {place.name for place in cache.folder.iterdir()}
    assert kept == {many.files[n].digest for n in (0, 18, 19)}


def test_folders_of_processes_that_have_ended_are_deleted(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom flowrun.runtime.cluster.job_files import FileCache\n"
        "print(FileCache(Path(sys.argv[1])).lay_out((), lambda _: b''))\n"
    )
    said = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    ended = Path(said.stdout.strip())
    assert ended.is_dir()
    cache = FileCache(tmp_path)
    own = cache.lay_out((), lambda _: b"")
    assert list(cache.layouts.iterdir()) == [own]


def test_a_folder_that_others_may_change_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ClusterError, match="other users may change what is in it"):
        FileCache(tmp_path / "open")
    monkeypatch.delenv("FLOWRUN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "open" / "file"))
    (tmp_path / "open" / "file").write_text("")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert users_cache().folder.is_relative_to(tmp_path / f"flowrun-cache-{os.geteuid()}")
