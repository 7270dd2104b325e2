"""Three hospitals, a server and an analyst, on one machine and in folders of their own.

Each makes its own key; the server's operator signs their requests; everybody speaks mutual TLS, and
no hospital opens a port. The analyst fits to rows and to columns that she never sees, is refused
what a hospital has not approved, and hears within seconds of a hospital that goes down.

Where the machine allows network namespaces, each hospital is in one of its own that nothing leads
into: it has no interface but a loopback of its own, and one way out, to the server's port.

    python examples/three_sites_nvflare.py

docs/deploying.md goes the same way by hand.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import psutil

import eigenmesh as em
from eigenmesh.nvflare_jobs.kit import secure_server, secure_site
from eigenmesh.runtime.masks import identity
from eigenmesh.site_folder import open_site

ANALYST = "analyst@hub.org"
SERVER = "localhost"
SITES = ("east", "north", "south")

# `nvflare` takes seconds to start: all its commands of a step are run by one interpreter.
_COMMANDS = """
import contextlib, io, json, sys
from nvflare.cli import main
for command in json.load(sys.stdin):
    sys.argv = ["nvflare", *command]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                sys.exit(f"{' '.join(command)}: {ended.code}")
"""


class Federation:
    """A federation in one folder: kits, sites' folders, and the processes that were started."""

    def __init__(self, folder: Path, sites=SITES, analysts=(ANALYST,)) -> None:
        self.folder, self.sites = Path(folder), tuple(sites)
        self.analysts = tuple(analysts)
        self._processes: dict[str, subprocess.Popen] = {}
        self.is_apart = can_be_apart()  # every site in a network namespace of its own
        self._port = free_port()

    # Kits: every participant makes its own key, and the operator signs what it asks for.

    def provision(self) -> None:
        """Kits for the server, the sites and the analysts."""
        server = {"host": SERVER, "fed_learn_port": self._port}
        profile = {"name": "eigenmesh", "scheme": "grpc", "connection_security": "mtls"}
        profile["server"] = server
        self._write("profile.yml", profile)
        self._nvflare(["cert", "init", "--profile", "profile.yml", "-o", "ca"])
        people = [{"name": SERVER, "org": "hub", "type": "server"}]
        people += [{"name": s, "org": f"{s}_hospital", "type": "client"} for s in self.sites]
        people += [
            {"name": a, "org": "hub", "type": "admin", "role": "lead"} for a in self.analysts
        ]
        self._nvflare(*(c for person in people for c in self._request_and_approve(person)))
        self._nvflare(*(self._package(person["name"]) for person in people))
        secure_server(self.kit(SERVER))

    def _request_and_approve(self, person: dict) -> list[list[str]]:
        name = person["name"]
        self._write(f"{name}.yml", {"name": "eigenmesh", "participants": [person]})
        request = f"requests/{name}/{name}.request.zip"
        approve = ["cert", "approve", "-c", "ca", "--profile", "profile.yml"]
        return [
            ["cert", "request", "-p", f"{name}.yml", "--out", f"requests/{name}"],
            [*approve, "--out", f"{name}.signed.zip", request],
        ]

    def _package(self, name: str) -> list[str]:
        # On the telephone the operator reads out the fingerprint of the root certificate.
        own = ["--request-dir", f"requests/{name}", "-w", f"kits/{name}"]
        return ["package", f"{name}.signed.zip", *own, "--fingerprint", self._fingerprint()]

    def _fingerprint(self) -> str:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        certificate = x509.load_pem_x509_certificate((self.folder / "ca/rootCA.pem").read_bytes())
        return "SHA256:" + certificate.fingerprint(hashes.SHA256()).hex(":").upper()

    def kit(self, name: str) -> Path:
        """Where a participant's own kit is."""
        return self.folder / "kits" / name / "eigenmesh" / "prod_00" / name

    def _nvflare(self, *commands: list[str]) -> None:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        subprocess.run(
            [sys.executable, "-c", _COMMANDS],
            input=json.dumps(commands).encode(),
            cwd=self.folder,
            env={**os.environ, "HOME": str(home)},
            check=True,
            timeout=120,
        )

    def _write(self, name: str, tree: dict) -> None:
        (self.folder / name).write_text(json.dumps(tree))  # which is YAML, too

    # What a hospital does: its data, its policy, the others' keys, and who may ask.

    def add_study(self, study: str, split: str, blocks, policy="", ids=None) -> None:
        """At every site a folder with its block of the data; the first analyst may work on it."""
        for site, X in zip(self.sites, blocks, strict=True):
            folder = self.site_folder(study, site)
            folder.mkdir(parents=True)
            write_csv(folder / "ward.csv", X, ids)
            settings = f'name = "{site}"\ndata = "ward.csv"\nsplit = "{split}"\n'
            settings += "" if ids is None else 'id_column = "patient"\n'
            (folder / "site.toml").write_text(settings)
            (folder / "policy.toml").write_text(policy)
            secure_site(self.kit(site), study, folder, self.analysts[:1])
        self._exchange_keys(study)

    def _exchange_keys(self, study: str) -> None:
        """Hospitals tell each other the keys that `eigenmesh site check` shows."""
        folders = {site: self.site_folder(study, site) for site in self.sites}
        keys = {site: identity(open_site(own).identity).hex() for site, own in folders.items()}
        for site, folder in folders.items():
            peers = [f'{other} = "{key}"' for other, key in keys.items() if other != site]
            with (folder / "site.toml").open("a") as file:
                file.write("[peers]\n" + "\n".join(peers) + "\n")

    def site_folder(self, study: str, site: str) -> Path:
        """A site's folder of a study."""
        return self.folder / "sites" / site / study

    # Processes, each in a session of its own; only those that were started here are ended.

    def start(self, *names: str) -> None:
        """Start participants; the server and every site if none is named."""
        self._since = time.time()
        for name in names or (SERVER, *self.sites):
            kit = self.kit(name)
            is_apart = self.is_apart and name in self.sites
            command = ["bash", str(kit / "startup" / "sub_start.sh"), "--once"]
            with (kit / "out.txt").open("ab") as out:
                self._processes[name] = subprocess.Popen(
                    [*APART, *command] if is_apart else command,
                    stdout=out,
                    stderr=out,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**os.environ, **self._environment()},
                )
            if is_apart:
                open_way_out(self._processes[name].pid, self._port)

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        return {"PATH": path, "HOME": str(self.folder / "home"), **threads}

    def job_processes(self, name: str) -> list[psutil.Process]:
        """A participant's processes of jobs that run."""
        own = psutil.Process(self._processes[name].pid)
        return [child for child in own.children(recursive=True) if child.is_running()]

    def kill(self, name: str) -> None:
        """As a power cut would."""
        process = self._processes.pop(name)
        with_children = [psutil.Process(process.pid)]
        with_children += with_children[0].children(recursive=True)
        for own in with_children:
            own.send_signal(signal.SIGKILL)
        process.wait(timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        for name in list(self._processes):
            try:
                self.kill(name)
            except (psutil.Error, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}", file=sys.stderr)

    def open(self, study: str, analyst: str = ANALYST, **options):
        """What the analyst does; a site takes some seconds to connect."""
        kit = self.kit(analyst)
        return em.federation(engine="nvflare", startup_kit=kit, study=study, **options)

    def wait_for_sites(self, seconds: float = 60) -> None:
        """Until all are connected to the server."""
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        deadline = time.monotonic() + seconds
        while True:
            try:
                session = new_secure_session(ANALYST, str(self.kit(ANALYST)), timeout=10)
                break
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        try:
            while not self._are_connected(session.get_connected_client_list()):
                if time.monotonic() > deadline:
                    raise TimeoutError("not every site has connected")
                time.sleep(0.25)
        finally:
            session.close()

    def _are_connected(self, clients: list) -> bool:
        """The server takes a site that went down for connected until it comes back."""
        fresh = {client.name for client in clients if client.last_connect_time > self._since}
        return fresh >= set(self.sites)


# A network namespace of its own, whose loopback is up; `sh` becomes the command that follows.
APART = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
CLONE_NEWNET = 0x40000000


def can_be_apart() -> bool:
    """Whether this machine lets us make network namespaces."""
    try:
        return subprocess.run([*APART, "true"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def open_way_out(pid: int, port: int) -> None:
    """Let what connects to the port inside a process's namespace get to the same port out here."""
    listening: list[socket.socket] = []
    deadline = time.monotonic() + 20

    def enter_and_listen() -> None:  # a namespace is a thread's; a socket stays in its own
        with open(f"/proc/{pid}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                return
        while time.monotonic() < deadline and not listening:
            try:
                listening.append(socket.create_server(("127.0.0.1", port)))
            except OSError:  # its loopback is not up yet
                time.sleep(0.05)

    while time.monotonic() < deadline and not listening:
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.02)  # it is still in ours
            continue
        entering = threading.Thread(target=enter_and_listen)
        entering.start()
        entering.join()
    if not listening:
        raise TimeoutError("a site's network namespace did not come up")
    threading.Thread(target=_forward_all, args=(listening[0], port), daemon=True).start()


def _forward_all(listening: socket.socket, port: int) -> None:
    while True:
        inside, _ = listening.accept()
        try:
            outside = socket.create_connection(("127.0.0.1", port), timeout=10)
        except OSError:  # the server is down: the site tries again
            inside.close()
            continue
        outside.settimeout(None)
        for own in (
            inside,
            outside,
        ):  # else what comes in pieces waits 40 ms for an acknowledgement
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pair in ((inside, outside), (outside, inside)):
            threading.Thread(target=_forward, args=pair, daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    for own in (source, sink):
        try:
            own.shutdown(socket.SHUT_RDWR)
        except OSError:
            own.close()


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


def write_csv(path: Path, X: np.ndarray, ids=None) -> None:
    names = [f"x{j}" for j in range(X.shape[1])]
    rows = [[repr(float(value)) for value in row] for row in X]
    if ids is not None:
        names, rows = ["patient", *names], [[own, *row] for own, row in zip(ids, rows, strict=True)]
    path.write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")


def main(folder: Path) -> None:
    """Provision, fit to rows and to columns, be refused, lose a hospital; then stop everything."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * [3, 2, 1.5, 1, 1, 1]
    patients = [f"P{i:03d}" for i in range(len(X))]
    sums_alone = 'allow = ["aggregate", "counts", "hashes"]'
    with Federation(folder) as federation:
        federation.provision()
        federation.add_study("heart", "rows", np.split(X, [100, 180]), policy=sums_alone)
        federation.add_study("genes", "columns", np.split(X, [2, 4], axis=1), ids=patients)
        federation.start()
        federation.wait_for_sites()
        print("three sites are connected, and none has opened a port")
        print(
            "each is in a network namespace of its own, with one way out and none in"
            if federation.is_apart
            else "this machine allows no network namespaces: the sites share its loopback"
        )
        rows(federation, X)
        columns(federation, X)
    print("everything has stopped")


def rows(federation: Federation, X: np.ndarray) -> None:
    """Each hospital has patients of its own."""
    kpca = em.KernelPCA(2, kernel="linear", random_state=0)
    with federation.open("heart") as fed:
        answer = kpca.fit(fed).eigenvalues_
        pooled = em.KernelPCA(2, kernel="linear", random_state=0).fit(X).eigenvalues_
        same = np.allclose(answer, pooled, rtol=1e-6)
        print(f"rows: the pooled answer: {same}; left the sites: {kpca.report_.what_left}")

        try:
            em.DisKPCA(2, n_landmarks=20, random_state=0).fit(fed)
        except em.EigenmeshError as refusal:
            print(f"landmarks are rows: {refusal}")

        # Nobody goes on without the south here: the sum of the others was never opened, and what
        # it differs by from that of all three would be the south's own.
        federation.kill("south")
        begin = time.monotonic()
        try:
            kpca.fit(fed)
        except em.EigenmeshError as loss:
            print(f"after a power cut: {loss}")
        print(f"said so within 15 s: {time.monotonic() - begin < 15}")

        federation.start("south")
        federation.wait_for_sites()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            same = np.allclose(kpca.fit(fed).eigenvalues_, answer, rtol=1e-9)
        print(f"south is back, and the answer as before: {same}; {said[0].message}")


def columns(federation: Federation, X: np.ndarray) -> None:
    """All hospitals have the same patients, and each its own measurements of them."""
    model = em.OneShotKPCA(2, local_rank=2)
    parts = em.Partitioned(columns=np.split(X, [2, 4], axis=1))
    with federation.open("genes") as fed, warnings.catch_warnings():
        warnings.simplefilter("ignore", em.CostWarning)  # of so little data
        scores = model.fit(fed).transform(fed)
        here = em.OneShotKPCA(2, local_rank=2).fit_transform(parts)
    same = np.allclose(scores, here, atol=1e-8)
    print(f"columns: scores as in one process: {same}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
