"""Between organisations: parties at the sites of an NVFlare federation, which open no port.

Two engines over one job. `Flare` lives in the job's process at the server and calls the sites;
`Relayed` lives in the analyst's process and hands its requests to the job as app commands. What a
site does with them is in `eigenmesh.nvflare_jobs.sides`. Only bytes pass; no code travels.

NVFlare waits for a dead process until the time of the call is over. So everybody who is waited for
is looked at every few seconds, and whoever is silent twice in a row is lost, whatever the timeout.
"""

from __future__ import annotations

import base64
import binascii
import io
import itertools
import json
import logging
import socket
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from eigenmesh.errors import (
    EigenmeshError,
    EigenmeshWarning,
    FederationError,
    InputError,
    PartyFailed,
    PartyLost,
)
from eigenmesh.runtime import wire
from eigenmesh.runtime.engine import Engine, Lost, Reply
from eigenmesh.runtime.requests import error_from
from eigenmesh.version import __version__

TOPIC = "eigenmesh"
NONE, LATE = b"", b"late"  # in place of a reply: there is none, or it took too long
SILENT_FIRST = "who fell silent before NVFlare ended the job: "  # in the log of the server's side
# The only classes that a job names; every side has them installed.
SERVER, SITE = "eigenmesh.nvflare_jobs.sides.ServerSide", "eigenmesh.nvflare_jobs.sides.SiteSide"
SERVER_CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
GATE = "eigenmesh.nvflare_jobs.sides.Gate"  # a component of a site's own
LOOK_SECONDS = 2.0  # for an answer to a look at those who are waited for
_BETWEEN_LOOKS = 1.0  # seconds; NVFlare ends a job 5 s after one of its processes
_SILENT_LOOKS = 2  # in a row, after which a party is lost
_SLACK = 1.25  # a site keeps to the time of a step itself, and says so; then the call is given up
_MEETING_SECONDS = 60.0
_JOB_SECONDS = 90.0  # until a job is up; 14 to 21 were measured
_COMMAND_SECONDS = 60.0
_BETWEEN_KNOCKS = 2.5  # seconds, at a server that has not answered: it mostly does within two
_ENDING_SECONDS = 10.0  # until the server says of a job whose process is gone that it has ended
_ENDED = ("FINISHED", "ABANDONED", "FAILED")
_SILENT = Lost("its process does not answer any more")
_ABSENT = Lost("it is not in the job")
_GONE = (_SILENT, _ABSENT)  # in another job they may be there again
_log = logging.getLogger("eigenmesh.nvflare")


# In the server's job.


class Flare(Engine):
    """Calls the sites of a job; `proxies` are NVFlare's, by name. Those missing there are lost."""

    name = "nvflare"
    relays = "sealed"
    values_stay = True
    split = align = ""  # as the sites said

    def __init__(
        self,
        proxies: Mapping[str, Any],
        parties: Sequence[str],
        is_aborted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.parties = tuple(parties)
        self._proxies = dict(proxies)
        self._is_aborted = is_aborted
        self._swaps = itertools.count(1)
        self.n_waves = 0  # of requests so far
        self._n_under_way = 0
        self._looking = threading.Lock()
        self._silence: Counter[int] = Counter()  # looks in a row that were not answered
        self._losses: dict[int, float] = {}  # since when somebody has been silent too often

    def meet(self) -> dict[str, Any]:
        """What the sites say of themselves, or why they say nothing, by name."""
        roster = wire.dumps({"parties": list(self.parties), "version": __version__})
        arguments = {i: {"roster": roster} for i in range(len(self.parties))}
        replies = dict(self._wave("meet", arguments, _MEETING_SECONDS))
        return {self.parties[i]: _introduction(reply) for i, reply in replies.items()}

    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """Requests run at all sites at once."""
        arguments = {i: {"request": r, "seconds": timeout} for i, r in requests.items()}
        return self._wave("handle", arguments, timeout)

    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """Sites send each other what they offer, under seal; a lost one is waited for by nobody."""
        number = next(self._swaps)
        arguments = {}
        for i, request in requests.items():
            order = {"swap": number, "near": list(neighbours[i]), "seconds": timeout}
            arguments[i] = {"order": wire.dumps(order), "request": request}

        def tell_neighbours(lost: int) -> None:
            label = wire.dumps({"swap": number, "sender": lost})
            for i in neighbours[lost]:
                if i in requests:
                    _in_thread(self._at, i, "give_up", LOOK_SECONDS, {"label": label})

        # Two halves, and neighbours that say when their own time is over.
        return self._wave("exchange", arguments, 2.5 * timeout, tell_neighbours)

    def close(self) -> None:
        """Nothing is held between calls."""

    def _at(self, i: int, method: str, seconds: float, arguments: Mapping[str, Any]) -> Any:
        proxy = self._proxies.get(self.parties[i])
        if proxy is None:
            return _ABSENT
        return getattr(proxy(timeout=seconds), method)(**arguments)

    def _wave(
        self,
        method: str,
        arguments: Mapping[int, Mapping[str, Any]],
        timeout: float,
        on_loss: Callable[[int], None] = lambda i: None,
    ) -> Iterator[tuple[int, Reply]]:
        self.n_waves += 1
        self._n_under_way += 1
        try:
            yield from self._replies(method, arguments, timeout, on_loss)
        finally:
            self._n_under_way -= 1

    def _replies(
        self,
        method: str,
        arguments: Mapping[int, Mapping[str, Any]],
        timeout: float,
        on_loss: Callable[[int], None],
    ) -> Iterator[tuple[int, Reply]]:
        limit = _SLACK * timeout + LOOK_SECONDS
        pending = {_in_thread(self._at, i, method, limit, a): i for i, a in arguments.items()}
        replies: dict[int, Reply] = {}
        # Of whoever is lost already one more look without an answer is enough, and it is at once.
        lost = {i: _SILENT_LOOKS - 1 for i in arguments if i in self._losses}
        self._silence = Counter(lost)
        waiting, next_look = list(arguments), time.monotonic() + (not lost) * _BETWEEN_LOOKS
        while waiting:
            seconds = max(next_look - time.monotonic(), 0.0)
            done, _ = wait(pending, seconds, return_when=FIRST_COMPLETED)
            for future in done:
                replies[pending.pop(future)] = _reply_in(future, timeout)
            if pending and time.monotonic() >= next_look:
                # While NVFlare takes a job down its sites fall silent, which says nothing of them.
                for i in () if self._is_aborted() else self._silent(pending.values()):
                    replies[i] = _SILENT
                    on_loss(i)
                pending = {future: i for future, i in pending.items() if i not in replies}
                next_look = time.monotonic() + _BETWEEN_LOOKS
            while waiting and waiting[0] in replies:
                yield waiting[0], replies.pop(waiting.pop(0))

    def look_round(self) -> None:
        """Look at every site while none is asked: the coordinator may compute for long."""
        if not self._n_under_way:
            self._silent(range(len(self.parties)))

    def fell_silent(self) -> list[str]:
        """Who was the first to be lost of late, or else has been silent longest.

        Others fall silent, too, while NVFlare takes the job down. A look that is under way ends
        first: an abort cuts it short.
        """
        with self._looking:
            return self._first_silent()

    def _first_silent(self) -> list[str]:
        late = time.monotonic() - _ENDING_SECONDS
        first = min((moment for moment in self._losses.values() if moment > late), default=None)
        if first is not None:
            return [self.parties[i] for i, moment in self._losses.items() if moment == first]
        silence = {i: looks for i, looks in self._silence.items() if i not in self._losses}
        most = max(silence.values(), default=0)
        return [self.parties[i] for i, looks in silence.items() if looks == most > 0]

    def _silent(self, places: Iterable[int]) -> list[int]:
        """Of these, who has not answered a look too often."""
        with self._looking:
            looks = {i: _in_thread(self._at, i, "is_there", LOOK_SECONDS, {}) for i in places}
            wait(looks.values(), LOOK_SECONDS)
            for i, look in looks.items():
                is_there = look.done() and look.exception() is None and look.result() is True
                self._silence[i] = 0 if is_there else self._silence[i] + 1
                if is_there:
                    self._losses.pop(i, None)
            lost = [i for i in looks if self._silence[i] >= _SILENT_LOOKS]
            for i in lost:
                self._losses.setdefault(i, time.monotonic())
        return lost


def _in_thread(work: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """In a thread of its own that holds up nothing when the process ends."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            result = work(*arguments)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="eigenmesh-call", daemon=True).start()
    return future


def _reply_in(future: Future[Any], timeout: float) -> Reply:
    error = future.exception()
    if error is not None:
        _log.info("a call to a site failed: %s", error)
        return _SILENT
    reply = future.result()
    if isinstance(reply, Lost):
        return reply
    if not isinstance(reply, bytes) or reply == NONE:
        return Lost("it gave no reply")
    return Lost(f"it gave no reply within {timeout:g} s") if reply == LATE else reply


def _introduction(reply: Reply) -> dict[str, Any]:
    if isinstance(reply, Lost):
        return {"lost": reply.reason}
    try:
        tree = wire.loads(reply)
    except EigenmeshError as error:
        return {"lost": f"its introduction is malformed: {error.reason}"}
    return tree if isinstance(tree, dict) else {"lost": "its introduction is malformed"}


# What passes between the analyst's process and the job, in JSON.


def packed(requests: Mapping[int, bytes]) -> dict[str, Any]:
    """Requests by party; a broadcast is one for all, and travels once."""
    distinct = list(dict.fromkeys(requests.values()))
    places = {request: k for k, request in enumerate(distinct)}
    return {
        "requests": [base64.b64encode(request).decode() for request in distinct],
        "to": [[i, places[request]] for i, request in requests.items()],
    }


def unpacked(tree: Mapping[str, Any]) -> dict[int, bytes]:
    """What `packed` was given."""
    requests = [base64.b64decode(text, validate=True) for text in tree["requests"]]
    return {int(i): requests[k] for i, k in tree["to"]}


def reply_to_json(reply: Reply) -> dict[str, str]:
    """A reply, or why there is none."""
    if isinstance(reply, Lost):
        return {"lost": reply.reason}
    return {"reply": base64.b64encode(reply).decode()}


def _reply_from_json(tree: Any) -> Reply:
    match tree:
        case {"reply": str(text)}:
            with suppress(binascii.Error):
                return base64.b64decode(text, validate=True)
        case {"lost": str(reason)}:
            return Lost(reason)
    return Lost("what the server says of its reply is malformed")


# In the analyst's process.


class JobEnded(PartyLost):
    """The NVFlare job that carried the requests is over; `party` is whose process ended first."""

    may_have_asked = True  # some site, before it ended; sites refuse to be asked the same again


class _NoAnswer(FederationError):
    """The server is there, and the job's process beside it did not answer a command."""


class ServerUnreachable(JobEnded):
    """Neither the job nor another one can be reached."""


class Relayed(Engine):
    """Requests go to a job at the server, which calls the sites.

    Parameters
    ----------
    startup_kit : the analyst's own folder, as `nvflare package` made it.
    study : the name under which the sites have agreed to work together.
    names : the sites that must take part, in this order; every connected one, by name, if None.
    """

    name = "nvflare"
    relays = "sealed"
    values_stay = True

    def __init__(
        self, startup_kit: str | Path, study: str, names: Sequence[str] | None = None
    ) -> None:
        self._job = _Job(Path(startup_kit), study, names)
        self._is_running, self._is_fresh, self._is_over = False, True, False
        self._gone: set[int] = set()  # parties whose process in this job is no more
        self._is_anew = True  # nothing of what is done now was asked yet
        try:
            self._job.submit()
            self.parties = self._job.expected()
            self.split, self.align = _agreed(self._job.meet(self.parties), self.parties, study)
        except BaseException:
            self._job.close()
            raise

    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """One command carries the requests of all parties."""
        return self._relayed("call", requests, {"timeout": timeout})

    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """The sites exchange among themselves; nothing of it comes here."""
        near = {str(i): list(others) for i, others in neighbours.items()}
        return self._relayed("swap", requests, {"timeout": timeout, "neighbours": near})

    def _relayed(
        self, operation: str, requests: Mapping[int, bytes], fields: Mapping[str, Any]
    ) -> Iterator[tuple[int, Reply]]:
        may_replace, self._is_fresh = self._is_fresh, not self._is_running
        # Between the runs of a fit whoever is gone is asked again, and named, in seconds: another
        # job takes a quarter of a minute to be up, and would not have a site that is down either.
        concerned, self._is_anew = requests if self._is_anew else {}, False
        try:
            answer = self._work(may_replace, concerned, operation, {**packed(requests), **fields})
        except JobEnded as ended:
            if not self._is_over:  # with the job every party is gone: nobody is left to go on with
                self._is_over = True
                raise
            for i in requests:
                yield i, Lost(ended.reason)
            return
        replies = answer.get("replies")
        for i in requests:
            reply = _reply_from_json(replies.get(str(i)) if isinstance(replies, dict) else None)
            if reply in _GONE:
                self._gone.add(i)
            yield i, reply

    def _work(
        self,
        may_replace: bool,
        concerned: Iterable[int],
        operation: str,
        fields: Mapping[str, Any],
        on_progress: Callable[[str], None] = lambda words: None,
    ) -> dict[str, Any]:
        """Where no run would suffer, a job that has ended, or lost one concerned, is replaced."""
        if may_replace and self._gone.intersection(concerned):
            self._replace_job(f"lost {', '.join(repr(self.parties[i]) for i in self._gone)}")
        try:
            return self._job.work(operation, fields, on_progress)
        except JobEnded as ended:
            is_half_done = ended.may_have_asked and operation != "order"  # it fits anew
            if is_half_done or not may_replace or isinstance(ended, ServerUnreachable):
                raise
            self._replace_job(ended.reason)
        return self._job.work(operation, fields, on_progress)

    def order(self, work: Mapping[str, Any], on_progress: Callable[[str], None]) -> dict[str, Any]:
        """Let the server's job be the coordinator: replies of the sites then stay there."""
        order = {**work, "split": self.split, "align": self.align}
        return self._work(True, range(len(self.parties)), "order", {"work": order}, on_progress)

    def begin_anew(self) -> None:
        """A job that has lost somebody is replaced before anything else is asked."""
        self._is_anew = True

    @contextmanager
    def session(self) -> Iterator[None]:
        """Once a run has begun its job is not replaced: parties of another one know nothing."""
        self._is_running, self._is_fresh, self._is_over = True, True, False
        try:
            yield
        finally:
            self._is_running, self._is_fresh = False, True

    def _replace_job(self, why: str) -> None:
        words = f"NVFlare job {self._job.id} is of no more use ({why}); another one was submitted"
        self._job.end()
        self._job.submit()
        self._gone.clear()
        introductions = self._job.meet(self.parties)
        present = [name for name in self.parties if "lost" not in introductions[name]]
        if _agreed(introductions, present, self._job.study) != (self.split, self.align):
            raise FederationError(
                "the sites hold something else than before; open the federation anew"
            )
        # Last: where warnings are errors, the new job is one that works.
        warnings.warn(words, EigenmeshWarning, stacklevel=2)

    def close(self) -> None:
        """End the job and the session with the server."""
        self._job.close()


class _Held(NamedTuple):
    """What a site says that it holds."""

    split: str  # "rows" or "columns"
    align: str  # unless "strict", its samples are to be matched with the others'


def _agreed(introductions: Mapping[str, Any], names: Sequence[str], study: str) -> _Held:
    """What all sites say that they hold; raises for the first that differs."""
    splits = {name: _held_by(introductions[name], name, study) for name in names}
    if not splits:
        raise PartyLost(f"no site has joined study {study!r}")
    first = names[0]
    for name, own in splits.items():
        if own != splits[first]:
            raise FederationError(
                f"in study {study!r} site {first!r} holds {splits[first].split} (align "
                f"{splits[first].align!r}), site {name!r} {own.split} (align {own.align!r}); every "
                f"site must hold the same: see to it in the sites' folders"
            )
    return splits[first]


def _held_by(introduction: Mapping[str, Any], name: str, study: str) -> _Held:
    match introduction:
        case {"refused": str(reason)}:
            raise PartyFailed(f"site {name!r} refuses study {study!r}: {reason}", party=name)
        case {"lost": str(reason)}:
            raise PartyLost(f"party {name!r} is lost: {reason}", party=name)
        case {"version": str(version)} if version != __version__:
            raise PartyFailed(
                f"site {name!r} has eigenmesh {version}, this process {__version__}; all sites "
                f"need the same version: pip install eigenmesh=={__version__} there",
                party=name,
            )
        case {"split": "rows" | "columns" as split, "align": "strict" | "inner" | "psi" as align}:
            return _Held(str(split), str(align))
    raise PartyFailed(f"site {name!r} gave a malformed introduction", party=name)


class _Job:
    """A session with the server, and one job that is replaced when it has ended."""

    def __init__(self, kit: Path, study: str, names: Sequence[str] | None) -> None:
        self.study, self.id = study, ""
        self._is_up = self._is_over = False
        self._names = None if names is None else tuple(names)
        self._lock = threading.RLock()  # a session takes one command at a time
        self._session = _session(kit)
        self._address = (str(self._session.api.host), int(self._session.api.port))

    # A job from submission to its end.

    def submit(self) -> None:
        """Submit a job that names installed classes, and wait until it answers."""
        self._is_up = self._is_over = False
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder) / "job", self.study, self._names)
            self.id = str(self._talk(lambda s: s.submit_job(str(Path(folder) / "job"))))
        deadline = time.monotonic() + _JOB_SECONDS
        while not self._answers():
            status = self.ended()
            if status is not None:
                raise JobEnded(
                    f"the NVFlare job of study {self.study!r} ended before it answered ({status}); "
                    f"the logs of the server and of the sites say why: a site may have refused it"
                )
            if (refusals := self._refusals()) is not None:
                self._abort()
                raise PartyLost(f"no site takes a job of study {self.study!r}: {refusals}")
            if time.monotonic() > deadline:
                self._abort()
                raise FederationError(
                    f"the NVFlare job of study {self.study!r} was not up in {_JOB_SECONDS:g} s; "
                    f"look whether sites are connected: {', '.join(self.connected()) or 'none is'}"
                )
            time.sleep(0.5)
        self._is_up, self._is_over = True, False

    def _answers(self) -> bool:
        with suppress(Exception):  # whatever is wrong shows in the job's status
            return "sites" in self.command({"do": "who"})
        return False

    def ended(self) -> str | None:
        """How the job has ended, or None while it runs."""
        try:
            status = str(self._talk(lambda s: s.get_job_status(self.id)) or "")
        except EigenmeshError as error:
            return error.reason
        return status if status.startswith(_ENDED) else None

    def _refusals(self) -> str | None:
        """What the server says if it asked the sites and none would have the job."""
        with suppress(EigenmeshError, AttributeError):
            history = self._talk(lambda s: s.get_job_meta(self.id)).get("schedule_history") or []
            return next((str(own) for own in history if "not enough sites" in str(own)), None)
        return None

    def _abort(self) -> None:
        with suppress(Exception):
            self._talk(lambda s: s.abort_job(self.id))

    def end(self) -> None:
        """Let the job end, if it has not."""
        if self._is_over:  # a process that is ending may leave the server waiting for its answer
            return
        try:
            self.command({"do": "end"})
        except ServerUnreachable:  # nor can the job be aborted
            pass
        except EigenmeshError:
            self._abort()

    def close(self) -> None:
        """Let the job end, then the session."""
        if self.id:
            self.end()
        with suppress(Exception):
            self._session.close()

    # Who is there.

    def connected(self) -> list[str]:
        """Sites that the server hears of."""
        return sorted(c.name for c in self._talk(lambda s: s.get_connected_client_list()))

    def expected(self) -> tuple[str, ...]:
        """Who must take part; raises for the first that is connected and has not joined."""
        names = self._names or tuple(self.connected())
        joined = set(self.command({"do": "who"})["sites"])
        for name in names:
            if name not in joined:
                raise PartyLost(
                    f"site {name!r} has not joined study {self.study!r}: it is not connected, or "
                    f"has not approved the study for this analyst; those who have: "
                    f"{', '.join(sorted(joined)) or 'none'}; names=[...] goes on with some",
                    party=name,
                )
        return names

    def meet(self, parties: Sequence[str]) -> dict[str, Any]:
        """Tell the sites who takes part; what they say of themselves."""
        sites = self.work("meet", {"parties": list(parties)}).get("sites")
        introductions = sites if isinstance(sites, dict) else {}
        return {name: introductions.get(name, {"lost": "no word came of it"}) for name in parties}

    # Commands.

    def work(
        self,
        operation: str,
        fields: Mapping[str, Any],
        on_progress: Callable[[str], None] = lambda words: None,
    ) -> dict[str, Any]:
        """Let the job do something; every command is short, whatever the work takes."""
        answer = self.command({"do": operation, **fields})
        has_begun = False
        while "ticket" in answer:
            has_begun = True
            on_progress(str(answer.get("progress", "")))
            answer = self.command({"do": "fetch", "ticket": answer["ticket"]}, has_begun)
        if "ended" in answer:
            raise self._ending(answer, has_begun or not answer.get("untouched"))
        match answer:
            case {"failed": {"party": str() | None as party, **error}}:
                raise error_from(error, party)
            case {"error": words}:
                raise FederationError(f"the server's job failed: {words}")
        return answer

    def _ending(self, answer: Mapping[str, Any], may_have_asked: bool = True) -> JobEnded:
        self._is_over = self._is_up
        party, words = None, f"the NVFlare job {self.id} has ended"
        match answer:
            case {"silent": [str(name)]}:
                party = name
                words = f"party {name!r} is lost: its process ended, and NVFlare the job with it"
            case {"silent": [_, _, *_] as names}:
                either = " or ".join(repr(str(name)) for name in names)
                words = f"the process of {either} ended, and NVFlare the job with it"
        ended = JobEnded(f"{words}; the next fit opens another", party=party)
        ended.may_have_asked = may_have_asked
        return ended

    def command(self, data: Mapping[str, Any], has_begun: bool = False) -> dict[str, Any]:
        """One app command to the job, which may have begun to ask sites already."""
        try:
            answer = self._talk(lambda s: s.do_app_command(self.id, TOPIC, dict(data)), has_begun)
        except _NoAnswer:
            # The server still has a job whose process is gone, for a moment.
            if self._is_up and self._ends_within(_ENDING_SECONDS):
                raise self._ending(self._last_words()) from None
            raise
        if not isinstance(answer, dict):
            raise FederationError("the server's job gave a malformed answer")
        return answer

    def _last_words(self) -> dict[str, Any]:
        """Who fell silent, by the log of a job whose process at the server is gone already."""
        with suppress(Exception), self._lock:  # another state of the server's may keep no log
            log = self._session.get_job_logs(self.id)["logs"]["server"]
            return {"silent": json.loads(log.rpartition(SILENT_FIRST)[2].splitlines()[0])}
        return {}

    def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.ended() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True

    def _talk(self, action: Callable[[Any], Any], has_begun: bool = False) -> Any:
        from nvflare.fuel.flare_api.api_spec import (
            JobNotFound,
            JobNotRunning,
            NoConnection,
            NoReply,
        )

        with self._lock:
            try:
                return self._answer_to(action)
            except (JobNotFound, JobNotRunning):
                raise self._ending(self._last_words(), may_have_asked=has_begun) from None
            except (NoConnection, _NobodyListens) as error:
                raise ServerUnreachable(
                    f"the NVFlare server cannot be reached ({error}); fit again when it is back"
                ) from None
            except NoReply:
                raise _NoAnswer(
                    f"the NVFlare job {self.id} gave the server no answer in time: its process is "
                    f"gone, or the machine busy; fit again"
                ) from None
            except EigenmeshError:
                raise
            except Exception as error:
                raise FederationError(f"the NVFlare server refuses or fails: {error}") from None

    def _answer_to(self, action: Callable[[Any], Any]) -> Any:
        """Of the server, at whose port somebody has to listen for as long as that takes.

        A command that a server dies over is waited for until its time is over.
        """
        answer, n_silent = _in_thread(action, self._session), 0
        while not wait([answer], _BETWEEN_KNOCKS).done:
            n_silent = 0 if _listens(self._address) else n_silent + 1
            if n_silent == _SILENT_LOOKS:
                raise _NobodyListens(f"nobody listens at {':'.join(map(str, self._address))}")
        return answer.result()


class _NobodyListens(Exception):
    """At the server's port."""


def _listens(address: tuple[str, int]) -> bool:
    """Whether somebody takes a connection there."""
    with suppress(OSError), socket.create_connection(address, LOOK_SECONDS):
        return True
    return False


def _session(kit: Path) -> Any:
    """A session of the analyst whom the kit belongs to."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    settings = kit / "startup" / "fed_admin.json"
    try:
        admin = json.loads(settings.read_text())["admin"]
        name = str(admin.get("username") or "")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"startup_kit {str(kit)!r} has no readable startup/fed_admin.json ({error}); the "
            f"folder that `nvflare package` made for an analyst is expected"
        ) from None
    try:
        with redirect_stdout(io.StringIO()):  # NVFlare tells everybody that it connects
            session = new_secure_session(name, str(kit.absolute()), timeout=15.0)
    except Exception as error:
        raise FederationError(
            f"the NVFlare server of {str(kit)!r} does not let {name!r} in: {error}; is it up, and "
            f"does the kit belong to its project?"
        ) from None
    session.set_timeout(_COMMAND_SECONDS)
    return session


def write_job(folder: Path, study: str, names: Sequence[str] | None = None) -> None:
    """A job that ships no code and names no data: classes that every side has installed."""
    sites = ["@ALL"] if names is None else ["server", *names]
    meta = {
        "name": job_name(study),
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"app": sites},
    }
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "controller",
                "path": SERVER_CONTROLLER,
                "args": {"server_obj_id": "eigenmesh", "sync_task_timeout": 60},
            }
        ],
        "components": [{"id": "eigenmesh", "path": SERVER, "args": {}}],
    }
    client = {
        "format_version": 2,
        "executors": [
            {
                "tasks": ["*"],
                "executor": {
                    "path": EXECUTOR,
                    "args": {"client_obj_id": "eigenmesh"},
                },
            }
        ],
        "components": [{"id": "eigenmesh", "path": SITE, "args": {}}],
    }
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(client))


_PREFIX = "eigenmesh "


def job_name(study: str) -> str:
    """How a job says of which study it is."""
    return _PREFIX + study


def study_of(job: Any) -> str | None:
    """The study of a job of this name; None if it is no job of ours."""
    is_ours = isinstance(job, str) and job.startswith(_PREFIX)
    return job[len(_PREFIX) :] if is_ours else None
