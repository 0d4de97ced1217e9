"""Locks in Redis, shared with the Go library redlatch.

    locks = redlatch.Locker(redis.Redis(socket_timeout=1))
    with locks("orders:42", ttl=10) as fence:
        ...  # only this caller works on orders:42

Callers wait in the queue of the key, first come, first served, whatever their language. A held lock is
renewed by a thread. If the work may take longer than the lease, ask ``lock.lost``, and let the resource
refuse fences that are lower than one that it has seen.

This is a reference client for one Redis, and no Cluster. Copy this file and the directory ``scripts`` beside it.
The numbers in comments are those of the steps in protocol/README.md.
"""

from __future__ import annotations

import os
import queue
import random
import secrets
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Set, Union

import redis

PROTOCOL = 1  # see protocol/README.md

_CLAIM = 2.0  # s: how long a lock that was handed over lasts, until it is extended
_DASH_CLAIM = 1.0  # s: the same, if Redis does not know whether this process listens
_EXTENDS_AFTER = 0.02  # s: many locks are released before


class NotAcquired(Exception):
    """Somebody else held the lock until the timeout."""


class LockLost(Exception):
    """The lease ended before the work did: somebody else may have had the lock."""


class _Told(NamedTuple):
    """A message of a hand-over."""

    at: float  # TIME of the release, s
    tick: int
    arrived: float


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _uuid7() -> str:
    n = int(time.time() * 1000) << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=n))


def _companion(kind: str, key: str) -> str:
    """Returns the name of a key that is in the Cluster slot of the lock."""
    tag, closed, _ = key.partition("{")[2].partition("}")
    return "{%s}:%s:%s" % (tag if closed and tag else key, kind, key)


class Locker:
    """Grants locks. Many threads may use one. After a fork, make another.

    ``client`` needs a ``socket_timeout``: it bounds how long after it was sent a command may still create something.
    ``owner`` is shown to those who wait.
    """

    def __init__(self, client: "redis.Redis[Any]", *, prefix: str = "", owner: Optional[str] = None) -> None:
        self._owner = "%s:%d" % (socket.gethostname(), os.getpid()) if owner is None else owner
        if self._owner[:1] in ("~", "!") or len(self._owner.encode()) > 200 or not self._owner.isprintable():
            raise ValueError("no name of an owner: %r" % self._owner)
        settings = client.connection_pool.connection_kwargs
        self._client, self._prefix, self._timeout = client, prefix, settings.get("socket_timeout") or 0.0
        if not self._timeout:
            raise ValueError("the client needs a socket_timeout")
        here = Path(__file__).resolve().parent
        scripts = next(d for d in (here / "scripts", here.parent / "scripts") if d.is_dir())
        self._acquire, self._extend, self._release = (
            client.register_script((scripts / file).read_text(encoding="utf-8"))
            for file in ("acquire.lua", "extend.lua", "release.lua")
        )
        db = settings.get("db") or 0
        self._channel = "redlatch:" + ("%s:" % db if db else "") + _uuid7()
        self._clock = (float("-inf"), 0.0)  # when TIME was learned, by the monotonic clock, and how far that is behind, s
        self._mu = threading.Lock()  # guards the fields below
        self._waiting: Dict[str, "queue.SimpleQueue[_Told]"] = {}  # by token
        self._held: Set[str] = set()
        self._listener: Optional[threading.Thread] = None
        self._subscribed = threading.Event()

    def __call__(self, key: str, *, ttl: float = 10.0, timeout: Optional[float] = None) -> "Lock":
        """Returns a lock that is not held yet. ``timeout`` bounds its wait in seconds: 0 asks once, None has no end."""
        if ttl < 0.1:
            raise ValueError("a TTL of less than 100 ms")
        return Lock(self, self._prefix + key, ttl, timeout)

    def _keys(self, key: str) -> "list[str]":
        return [key, self._prefix + "redlatch:fence", _companion("queue", key)]

    def _latest(self) -> int:
        """Returns until when a command sent now may create something. While TIME is unknown, 0 has Redis say it."""
        now, (learned, behind) = time.monotonic(), self._clock
        return int((now + self._timeout * 0.9 + behind) * 1e6) if now - learned < 3600 else 0

    def _ask(self, key: str, token: str, ttl: float, *place: Union[str, int]) -> Any:
        """Acquires. If the command came late, it learns TIME and sends it once more."""
        last = False
        while True:
            argv = [token, int(ttl * 1000), self._latest(), *place]
            reply = self._acquire(keys=self._keys(key), args=argv)
            if isinstance(reply, int) or _text(reply[0]) not in ("late", "more"):
                return reply
            if _text(reply[0]) == "more":  # 64 dead or silent processes were removed from the queue, and there are more
                continue
            arrived = time.monotonic()
            self._clock = arrived, reply[1] + reply[2] / 1e6 - arrived
            if last:
                raise redis.TimeoutError("Redis carries out commands too late")
            last = True

    def _give_back(self, key: str, token: str, entry: str = "") -> int:
        """Releases a token, and takes its entry out of the queue. It returns 0 if the token did not hold the lock."""
        while True:
            reply = self._release(keys=self._keys(key), args=[token, entry])
            if isinstance(reply, int):
                return reply
            # {"more", reply}: 64 dead processes were removed from the queue, and there are more.

    def _drop(self, key: str, token: str, entry: str) -> None:
        """Gives back a token that is not used. If that fails, its claim ends by itself, and others skip its entry."""
        try:
            self._give_back(key, token, entry)
        except redis.RedisError:
            pass

    def _place(self, ttl: float, token: str) -> "tuple[str, float]":
        """Subscribes, and returns the entry of a line and its claim in seconds."""
        with self._mu:
            if self._listener is None:
                self._listener = threading.Thread(target=self._listen, daemon=True)
                self._listener.start()
        dash = not self._subscribed.wait(self._timeout)
        claim = min(ttl, _DASH_CLAIM if dash else _CLAIM)
        return "%d %s%s %s" % (claim * 1000, "-" if dash else "", self._channel, token), claim

    def _listen(self) -> None:
        """Receives messages, for as long as the process runs."""
        pubsub = self._client.pubsub()
        while True:
            try:
                if not pubsub.subscribed:
                    pubsub.subscribe(self._channel)
                message = pubsub.get_message(timeout=0.5)
            except redis.RedisError:
                self._subscribed.clear()
                pubsub.reset()
                time.sleep(0.1)
                continue
            if message and message["type"] == "subscribe":
                self._subscribed.set()
            elif message and message["type"] == "message":
                self._deliver(_text(message["data"]).encode(), time.monotonic())

    def _deliver(self, data: bytes, arrived: float) -> None:
        """Reads "<s> <µs> <tick> <length of the entry> <entry><key>"."""
        try:
            s, us, tick, length, rest = data.split(b" ", 4)
            entry, key = rest[: int(length)].decode(), rest[int(length) :].decode()
            token = entry.split(" ", 2)[2]
            told = _Told(int(s) + int(us) / 1e6, int(tick), arrived)
        except (ValueError, IndexError):
            return  # of somebody else
        with self._mu:
            waiting, held = self._waiting.get(token), token in self._held
        if waiting:
            waiting.put(told)
        elif not held:  # a token that was given up, which a server with older data has kept
            threading.Thread(target=self._drop, args=(key, token, ""), daemon=True).start()


class Lock:
    """One lock, to be held once, by ``with``."""

    def __init__(self, locker: Locker, key: str, ttl: float, timeout: Optional[float]) -> None:
        self._locker, self._key, self._ttl, self._timeout = locker, key, ttl, timeout
        self._token = ("%s/" % locker._owner if locker._owner else "") + _uuid7()
        self._entry = ""
        self._until = 0.0  # by the monotonic clock
        self._lost, self._released = threading.Event(), threading.Event()
        self._renewer: Optional[threading.Thread] = None
        self._begun = False
        self.fence = 0

    @property
    def lost(self) -> bool:
        """Whether the lease has ended before the work. Then somebody else may have the lock."""
        if not self._released.is_set() and time.monotonic() >= self._until:
            self._lost.set()
        return self._lost.is_set()

    def __enter__(self) -> int:
        """Waits for the lock and returns its fence. It raises NotAcquired after the timeout."""
        if self._begun:
            raise RuntimeError("a Lock is held once")
        self._begun = True
        locker, told = self._locker, queue.SimpleQueue()  # type: Locker, queue.SimpleQueue[_Told]
        with locker._mu:
            locker._waiting[self._token] = told
        try:
            tick, renew_after = self._wait(told)
            with locker._mu:
                locker._held.add(self._token)
        except BaseException:
            locker._drop(self._key, self._token, self._entry)  # the outcome of an attempt may be unknown
            raise
        finally:
            with locker._mu:
                del locker._waiting[self._token]
        self.fence = tick * 64
        self._renewer = threading.Thread(target=self._renew, args=(renew_after,), daemon=True)
        self._renewer.start()
        return self.fence

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Gives the lock back. It raises LockLost if it was lost, unless the work has failed."""
        lost = self.lost
        self._released.set()
        try:
            if self._locker._give_back(self._key, self._token) == 0:  # also if redis-py has sent it twice, which is rare
                lost = True
                self._lost.set()
        except redis.RedisError:
            pass  # the lease ends by itself
        with self._locker._mu:
            self._locker._held.discard(self._token)
        if lost and kind is None:
            raise LockLost(self._key)

    def _wait(self, told: "queue.SimpleQueue[_Told]") -> "tuple[int, float]":
        """Returns the tick of the grant, and after how many seconds to renew it."""
        locker, begun, looks, queued = self._locker, time.monotonic(), 0, False
        deadline = float("inf") if self._timeout is None else begun + self._timeout
        claim = asked = at = 0.0  # asked: when the newest command was sent that returned TIME, which is at
        while True:
            sent = time.monotonic()
            place = [self._entry, int((sent - begun) * 1e6)] + (["again"] if queued else []) if self._entry else []
            try:
                reply = locker._ask(self._key, self._token, self._ttl, *place)
            except (redis.ConnectionError, redis.TimeoutError):  # unknown: the same command again does no harm
                if sent >= deadline:
                    raise
                reply = [-1, ""]
            if isinstance(reply, int):  # a minus says that the line was skipped
                if self._lease(sent, self._ttl):
                    return abs(reply), self._ttl / 3
                raise redis.TimeoutError("the reply came when the lease had ended")
            if time.monotonic() >= deadline:
                raise NotAcquired(self._key)
            if not self._entry:
                self._entry, claim = locker._place(self._ttl, self._token)  # 1, 2
                continue
            first = False
            if len(reply) > 2:
                asked, at, queued, first = sent, reply[4] + reply[5] / 1e6, True, reply[3] == 1
            pause = self._pause(first, reply[0] / 1000, looks)
            looks += 1
            try:
                news = told.get(timeout=max(0.0, min(pause, deadline - time.monotonic())))
            except queue.Empty:
                continue  # 4
            there = news.at - at
            age = max(0.0, news.arrived - asked - there + abs(there) / 100) if at else news.arrived - begun
            if self._lease(news.arrived - age, claim):
                return news.tick, _EXTENDS_AFTER  # 5
            looks = 0  # the claim has ended

    @staticmethod
    def _pause(first: bool, left: float, looks: int) -> float:
        """Returns the seconds until the next look. left are those of the holder's lease, below 0 if it has no end."""
        every = min(0.25 * 2**looks, 1.0) if first else min(2.0**looks, 2.0)
        every *= 1 + random.random() / 4
        if left < 0:
            return every
        return min(every, left + 0.001 if first else max(left + 0.1, 0.25))

    def _lease(self, start: float, lasts: float) -> bool:
        """Notes when a lease ends, by the local clock, before Redis gives it away. False: that has passed."""
        self._until = max(self._until, start + lasts - lasts / 100 - 0.002)
        return time.monotonic() < self._until

    def _renew(self, after: float) -> None:
        """Extends the lock until it is given back. It ends with the lock."""
        while not self._released.wait(min(after, max(0.0, self._until - time.monotonic()))) and not self.lost:
            sent = time.monotonic()
            try:
                held = self._locker._extend(keys=[self._key], args=[self._token, int(self._ttl * 1000)]) == 1
            except redis.RedisError:
                after = self._ttl / 10
                continue
            if self._released.is_set():
                return
            if not held:
                self._lost.set()
            if self.lost:  # also if the lease has ended before the reply came
                return
            self._lease(sent, self._ttl)
            after = self._ttl / 3
