"""What runs in the processes of an NVFlare job, at each site and at the server; and a site's gate.

A job names these classes and nothing else: no data, no policy, no code. Which folder belongs to a
study, and which analyst may work on it, is in the site's own `local/eigenmesh.json`, and all else
in that folder.

===================  ===========================================================================
site keeps           its data, policy, approvals, store, key and log; it answers the server only
server learns        requests and replies; of what neighbours send each other nothing but sizes
analyst learns       what the coordinator of a protocol does
===================  ===========================================================================
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.collab import collab

from eigenmesh.engines.nvflare import (
    LATE,
    LOOK_SECONDS,
    NONE,
    SILENT_FIRST,
    TOPIC,
    Flare,
    reply_to_json,
    study_of,
    unpacked,
)
from eigenmesh.errors import EigenmeshError, StepRefused
from eigenmesh.nvflare_jobs.kit import JOBS_LOG, SETTINGS
from eigenmesh.nvflare_jobs.orders import carry_out
from eigenmesh.runtime import wire
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.requests import error_tree, rule_alone
from eigenmesh.runtime.site_log import SiteLog
from eigenmesh.site_folder import open_site
from eigenmesh.threads import one_thread
from eigenmesh.version import __version__

_SERVER = "server"
# Seconds, while no site is asked: NVFlare takes others down within a second of a process's end.
_BETWEEN_LOOKS = 0.3
_FEW_SECONDS = 2.0  # that a command waits for the work that it began
_IDLE_SECONDS = 1800.0  # after which a job whose analyst is gone ends
_PARTING_SECONDS = 6.0  # that an aborted job can still be asked who was lost; NVFlare gives it 10
_SENDING_SECONDS = 0.5  # for an answer to leave the process
_GATED = ("submit_job", "check_resources", "deploy_app", "deploy")  # commands that bring a job
_log = logging.getLogger("eigenmesh.site")


def study_folder(settings: Path, study: str | None, submitter: str) -> Path:
    """The site's folder of a study, if its owner lets this submitter work on it."""
    try:
        studies = json.loads(settings.read_text())["studies"]
        own = studies.get(study)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise StepRefused(f"{settings} names no studies ({error})") from None
    if own is None or study is None:
        raise StepRefused(f"study {study!r} is not one of this site's")
    if submitter not in own.get("submitters", ()):
        raise StepRefused(f"{submitter!r} may not work on study {study!r} here")
    return Path(own["folder"])


def _settings(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT)) / "local" / SETTINGS


def _submitter(meta: Mapping[str, Any]) -> str:
    return str(meta.get("submitter_name"))


# At a site.


class Gate(FLComponent):
    """Refuses jobs of studies or submitters that the site's owner has not named.

    It is a component of the site's own resources.json, and asked before a job is brought here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_event_handler(EventType.AUTHORIZE_COMMAND_CHECK, self._check)

    def _check(self, event: str, fl_ctx: FLContext) -> None:
        if fl_ctx.get_prop(FLContextKey.COMMAND_NAME) not in _GATED:
            return
        try:
            self._require_approval(fl_ctx)
        except Exception as error:  # whatever is wrong here, no job passes
            _log.warning("a job was refused: %s", getattr(error, "reason", repr(error)))
            fl_ctx.set_prop(FLContextKey.AUTHORIZATION_RESULT, False, sticky=False)
            reason = "the site's owner has not approved this study for this submitter"
            fl_ctx.set_prop(FLContextKey.AUTHORIZATION_REASON, reason, sticky=False)

    def _require_approval(self, fl_ctx: FLContext) -> None:
        items = fl_ctx.get_prop(FLContextKey.SECURITY_ITEMS, {})
        meta = items.get(FLContextKey.JOB_META)
        if not meta:  # a command that tells of the job comes before it is brought here
            return
        settings, job = _settings(fl_ctx), str(meta.get("name"))
        line = {"op": "job", "job": job, "submitter": _submitter(meta)}
        try:
            study_folder(settings, study_of(job), _submitter(meta))
        except StepRefused as refusal:
            line |= {"error": type(refusal).__name__, "words": refusal.reason}
            raise
        finally:  # what cannot be logged is refused
            SiteLog(settings.with_name(JOBS_LOG)).add(line, sync=True)


class SiteSide:
    """A site's host in a job. What it publishes takes and gives bytes, and raises nothing."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._refusal = "it has not met the others"
        self._index, self._names = -1, cast(tuple[str, ...], ())
        self._peers: dict[str, Any] = {}
        self._post = _Post()

    @collab.init
    def open(self) -> None:
        """Take the study's name from the job, and all else from the site's own folder."""
        fl_ctx = collab.fl_ctx
        meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        self._name = collab.site_name
        self._peers = {proxy.name: proxy for proxy in collab.other_clients}
        try:
            study = study_of(meta.get("name"))
            folder = study_folder(_settings(fl_ctx), study, _submitter(meta))
            self._site: Any = open_site(folder)
            self._site.submitter = _submitter(meta)
        except EigenmeshError as error:
            _log.warning("site %s refuses a job: %s", self._name, error.reason)
            self._site, self._refusal = (
                None,
                "its owner has not set this study up; its log says why",
            )

    # What the server may ask for.

    @collab.publish
    def meet(self, roster: bytes) -> bytes:
        """Learn who takes part; say what is held here, "rows" or "columns"."""
        return self._for_server(lambda: self._introduce(roster))

    @collab.publish
    def is_there(self) -> bool:
        """A look from the server."""
        return True

    @collab.publish
    def handle(self, request: bytes, seconds: float) -> bytes:
        """Answer a request of the coordinator."""
        return self._for_server(lambda: self._in_time(seconds, lambda host: host.handle(request)))

    @collab.publish
    def exchange(self, order: bytes, request: bytes) -> bytes:
        """Offer, send to the neighbours under seal, wait for theirs and accept."""
        return self._for_server(lambda: self._exchange(order, request))

    @collab.publish
    def give_up(self, label: bytes) -> bytes:
        """A neighbour is lost: nothing will come from it in this exchange."""
        return self._for_server(lambda: self._take(label, NONE))

    # What a neighbour may do.

    @collab.publish
    def deliver(self, label: bytes, envelope: bytes) -> bytes:
        """Take a neighbour's message; an empty one says that none will come."""
        tree = wire.loads(label)
        names = self._names
        if tree.get("sender") not in range(len(names)) or names[tree["sender"]] != collab.caller:
            _log.warning("site %s: %s sent in another's name", self._name, collab.caller)
            return NONE
        return self._take(label, envelope)

    def _for_server(self, answer: Callable[[], bytes]) -> bytes:
        """Only the server asks; whatever goes wrong stays in the site's log."""
        if collab.caller != _SERVER:
            _log.warning("site %s: %s asked what only the server may", self._name, collab.caller)
            return NONE
        try:
            return answer()
        except Exception:
            _log.exception("site %s: a request failed", self._name)
            return NONE

    def _introduce(self, roster: bytes) -> bytes:
        tree = wire.loads(roster)
        names = tuple(map(str, tree["parties"]))
        if self._site is None or self._name not in names:
            return wire.dumps({"refused": self._refusal})
        if self._site.name != self._name:
            self._refusal = "its folder is another site's"
            return wire.dumps({"refused": self._refusal})
        if names != self._names:
            self._names, self._index = names, names.index(self._name)
            self._host = Host(self._site, self._index, names, relays=Flare.relays)
        align = "strict" if self._site.matcher is None else str(self._site.matcher.align)
        return wire.dumps({"split": self._site.split, "align": align, "version": __version__})

    def _in_time(self, seconds: float, work: Callable[[Host], bytes]) -> bytes:
        """What the host gives, or `LATE`; the step's thread is then left alone."""
        host = self._host
        if host is None:
            refusal = rule_alone(StepRefused(self._refusal, party=self._name), self._name)
            return wire.dumps(error_tree(refusal, -1))
        return _within(seconds, lambda: work(host), LATE)

    def _exchange(self, order: bytes, request: bytes) -> bytes:
        plan = wire.loads(order)
        swap, near, seconds = plan["swap"], plan["near"], float(plan["seconds"])
        deadline = time.monotonic() + 1.25 * seconds
        outbox: dict[int, bytes] | None = None

        def offer(host: Host) -> bytes:
            nonlocal outbox
            reply, outbox = host.offer(request)
            return reply or NONE

        reply = self._in_time(seconds, offer)
        label = wire.dumps({"swap": swap, "sender": self._index})
        for receiver in near:
            self._send(receiver, label, (outbox or {}).get(receiver, NONE))
        if outbox is None:
            self._post.end(swap)
            return reply
        inbox = self._post.collect(swap, set(near), deadline)
        return self._in_time(seconds, lambda host: host.accept(request, inbox))

    def _send(self, receiver: int, label: bytes, envelope: bytes) -> None:
        peer = self._peers.get(self._names[receiver])
        if peer is None:
            return
        try:
            # Encrypted for the receiver's certificate: the server forwards what it cannot read.
            peer(secure=True, expect_result=False).deliver(label=label, envelope=envelope)
        except Exception:
            _log.exception("site %s: a message to a neighbour could not be sent", self._name)

    def _take(self, label: bytes, envelope: bytes) -> bytes:
        tree = wire.loads(label)
        self._post.take(int(tree["swap"]), int(tree["sender"]), envelope)
        return NONE


class _Post:
    """Messages that have arrived, by exchange and sender."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._over = 0  # the last exchange that is; what still comes for it is dropped
        self._boxes: dict[int, dict[int, bytes]] = {}

    def take(self, swap: int, sender: int, envelope: bytes) -> None:
        """Keep a message of this exchange, or of one that other parties have begun already."""
        with self._news:
            if swap > self._over:
                self._boxes.setdefault(swap, {}).setdefault(sender, envelope)
                self._news.notify_all()

    def collect(self, swap: int, senders: set[int], deadline: float) -> dict[int, bytes]:
        """The messages that came in time."""
        with self._news:
            self._news.wait_for(
                lambda: senders <= self._boxes.get(swap, {}).keys(), deadline - time.monotonic()
            )
        return {sender: envelope for sender, envelope in self.end(swap).items() if envelope}

    def end(self, swap: int) -> dict[int, bytes]:
        """Close an exchange; what came for it."""
        with self._news:
            box = self._boxes.get(swap, {})
            self._over = max(self._over, swap)
            self._boxes = {later: own for later, own in self._boxes.items() if later > self._over}
            return box


def _within(seconds: float, work: Callable[[], bytes], late: bytes) -> bytes:
    results: list[bytes] = []

    def run() -> None:
        with one_thread():
            results.append(work())

    thread = threading.Thread(target=run, name="eigenmesh-party", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return late
    return (results[0] if results else None) or NONE


# At the server.


class ServerSide:
    """Carries the analyst's requests to the sites, until it is told to end or hears no more."""

    def __init__(self) -> None:
        self._proxies: dict[str, Any] = {}
        self._flare: Flare | None = None
        self._over = threading.Event()
        self._parting = threading.Event()  # the analyst was told that NVFlare has aborted the job
        self._heard = time.monotonic()
        self._works: dict[int, _Work] = {}
        self._tickets = itertools.count(1)

    @collab.main
    def run(self) -> None:
        """Wait; all work is begun by commands."""
        self._proxies = {proxy.name: proxy for proxy in collab.clients}
        self._context = collab.context
        collab.fl_ctx.get_engine().register_app_command(TOPIC, self.command)
        self._wait_for_the_end()

    def _wait_for_the_end(self) -> None:
        next_look = 0.0
        while not self._over.wait(0.2):
            if self._is_aborted():
                # Only this process knows who was lost: an analyst who asks later reads it there.
                _log.warning("%s%s", SILENT_FIRST, json.dumps(self._silent_first()))
                # No command to it may go unanswered.
                if self._parting.wait(_PARTING_SECONDS):
                    time.sleep(_SENDING_SECONDS)
                return
            busy = any(not work.is_done() for work in self._works.values())
            if not busy and time.monotonic() - self._heard > _IDLE_SECONDS:
                _log.warning("no word from the analyst: the job ends")
                return
            if self._flare is not None and time.monotonic() >= next_look:
                self._flare.look_round()
                next_look = time.monotonic() + _BETWEEN_LOOKS

    def command(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        """Answer a command of the analyst, soon: long work is fetched by its ticket."""
        self._heard = time.monotonic()
        try:
            if self._is_aborted():
                return {**self._ending(), "untouched": True}
            answer = self._answer(data)
            # What was asked of sites is cut short by an abort, and none of their own loss.
            return answer if not self._is_aborted() else self._ending()
        except EigenmeshError as error:
            return {"error": error.reason}
        except Exception as error:
            _log.exception("a command failed")
            return {"error": f"{type(error).__name__}; the server's log has the details"}

    def _is_aborted(self) -> bool:
        return bool(self._context.is_aborted())

    def _ending(self) -> dict[str, Any]:
        deadline = time.monotonic() + LOOK_SECONDS
        for work in list(self._works.values()):  # a look may be under way; the abort cuts it short
            work.wait(max(deadline - time.monotonic(), 0.0))
        self._parting.set()
        return {"ended": "NVFlare has aborted it", "silent": self._silent_first()}

    def _silent_first(self) -> list[str]:
        return [] if self._flare is None else self._flare.fell_silent()

    def _answer(self, data: Mapping[str, Any]) -> dict[str, Any]:
        match data:
            case {"do": "who"}:
                return {"sites": list(self._proxies)}
            case {"do": "end"}:
                self._over.set()
                return {}
            case {"do": "fetch", "ticket": int(ticket)} if ticket in self._works:
                return self._outcome(ticket)
            case {"do": "meet", "parties": list(parties)}:
                names = [str(name) for name in parties]
                self._flare = Flare(self._proxies, names, self._is_aborted)
                return self._begin(lambda: {"sites": self._met().meet()})
            case {"do": "call", "timeout": int() | float() as timeout}:
                return self._begin(lambda: _told(self._met().call(unpacked(data), timeout)))
            case {"do": "swap", "timeout": int() | float() as timeout, "neighbours": dict(near)}:
                near = {int(i): others for i, others in near.items()}
                return self._begin(lambda: _told(self._met().swap(unpacked(data), near, timeout)))
            case {"do": "order", "work": dict(work)}:
                return self._begin(lambda: carry_out(self._met(), work))
        return {"error": "the command is not known"}

    def _met(self) -> Flare:
        if self._flare is None:
            raise StepRefused("the sites have not met yet")
        return self._flare

    def _begin(self, action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        ticket = next(self._tickets)
        self._works[ticket] = _Work(action)
        return self._outcome(ticket)

    def _outcome(self, ticket: int) -> dict[str, Any]:
        work = self._works[ticket]
        if not work.wait(_FEW_SECONDS):
            sent = self._met().n_waves
            return {"ticket": ticket, "progress": f"{sent} requests to every site"}
        return self._works.pop(ticket).outcome


def _told(replies: Any) -> dict[str, Any]:
    return {"replies": {str(i): reply_to_json(reply) for i, reply in replies}}


class _Work:
    """Something that is done in a thread of its own."""

    def __init__(self, action: Callable[[], dict[str, Any]]) -> None:
        self.outcome: dict[str, Any] = {}
        self._action = action
        self._thread = threading.Thread(target=self._run, name="eigenmesh-work", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._action()
        except EigenmeshError as error:
            self.outcome = {"failed": error_tree(error, 0)}
        except BaseException as error:
            _log.exception("work for the analyst failed")
            self.outcome = {"error": f"{type(error).__name__}; the server's log has the details"}

    def is_done(self) -> bool:
        """Whether there is an outcome."""
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Whether there is an outcome within these seconds."""
        self._thread.join(seconds)
        return self.is_done()
