"""The settings of a participant's own NVFlare kit: what its owner lets NVFlare do.

A kit comes from `nvflare package` with defaults that let an analyst bring code and run shell
commands. What is written here lets a job name two classes that are installed, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eigenmesh.engines.nvflare import EXECUTOR, GATE, SERVER, SERVER_CONTROLLER, SITE
from eigenmesh.errors import InputError
from eigenmesh.safe_files import write_whole

SETTINGS = "eigenmesh.json"  # of a site: which folder belongs to a study, and who may work on it
JOBS_LOG = "eigenmesh_jobs.jsonl"  # beside it: which jobs came, for whom, and what was refused
_JOBS_AT_ONCE = 32  # open federations of all studies; a process each, here and at every site
_NOTHING = {"byoc": "none", "shell_commands": "none", "operate": "none"}
_VIEWER = {"view": "any"}
_ANALYST = {
    "submit_job": "any",
    "clone_job": "none",
    "manage_job": "n:submitter",
    "download_job": "n:submitter",
    "view": "any",
    "app_command": "n:submitter",
    "get_job_log": "n:submitter",  # which says who ended a job
}


def secure_site(kit: str | Path, study: str, folder: str | Path, submitters: Sequence[str]) -> None:
    """Let a site take part in a study: jobs of these submitters reach this folder, and no other.

    >>> import tempfile
    >>> kit = Path(tempfile.mkdtemp())
    >>> (kit / "local").mkdir()
    >>> _ = (kit / "local" / "resources.json.default").write_text('{"components": []}')
    >>> secure_site(kit, "heart", "/srv/heart", ["analyst@hub.org"])
    >>> json.loads((kit / "local" / "eigenmesh.json").read_text())["studies"]
    {'heart': {'folder': '/srv/heart', 'submitters': ['analyst@hub.org']}}
    """
    local = local_folder(kit)
    resources = _resources(local, [EXECUTOR, SITE])
    resources["allow_log_streaming"] = False
    resources["components"] = [
        *(own for own in resources["components"] if "log_streamer" not in own["id"]),
        {"id": "eigenmesh_gate", "path": GATE, "args": {}},
    ]
    _write(local / "resources.json", resources)
    _write(local / "authorization.json", _rights())
    studies = _read(local / SETTINGS).get("studies", {}) if (local / SETTINGS).exists() else {}
    studies[study] = {"folder": str(Path(folder).absolute()), "submitters": list(submitters)}
    _write(local / SETTINGS, {"studies": studies})


def secure_server(kit: str | Path) -> None:
    """Let the server run our jobs and keep what it stores in its own folder."""
    local = local_folder(kit)
    resources = _resources(local, [SERVER_CONTROLLER, SERVER])
    root = Path(kit).absolute()
    for own in resources["components"]:
        if own["id"] == "job_manager":
            own["args"]["uri_root"] = str(root / "jobs")
        if own["id"] == "job_scheduler":  # a fifth open federation waited until it was given up
            own["args"]["max_jobs"] = _JOBS_AT_ONCE
    storage = resources.get("snapshot_persistor", {}).get("args", {}).get("storage", {})
    storage.setdefault("args", {})["root_dir"] = str(root / "snapshots")
    _write(local / "resources.json", resources)
    _write(local / "authorization.json", _rights())


def _rights() -> dict[str, Any]:
    roles = {
        "project_admin": {**_VIEWER, **_NOTHING},
        "org_admin": {**_VIEWER, **_NOTHING, "manage_job": "o:submitter"},
        "lead": {**_ANALYST, **_NOTHING},
        "member": _VIEWER,
    }
    return {"format_version": "1.0", "permissions": roles}


def _resources(local: Path, classes: Sequence[str]) -> dict[str, Any]:
    """The kit's own, with no class but these that a job may name."""
    resources = _read(local / "resources.json.default")
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = list(classes)
    return resources


def local_folder(kit: str | Path) -> Path:
    """The part of a kit that is its owner's to change."""
    local = Path(kit) / "local"
    if not (local / "resources.json.default").exists():
        raise InputError(
            f"kit {str(kit)!r} has no local/resources.json.default; the folder that `nvflare "
            f"package` made is expected"
        )
    return local


def _read(path: Path) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    return tree


def _write(path: Path, tree: dict[str, Any]) -> None:
    write_whole(path, json.dumps(tree, indent=2).encode() + b"\n")
