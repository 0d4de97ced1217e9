"""Plays the vectors, and tests the client, on the Redis that its argument names: its database 0 is emptied.

    python3 redlatch_test.py redis://localhost:6379
"""

import json
import pathlib
import re
import sys
import time
import unittest

import redis

import redlatch

HERE = pathlib.Path(__file__).resolve().parent
PLACE = re.compile(r"\{(now|mark|tick|vote|s|us|left|age|until)([+-]\d+)?\}")
EPOCH, ZERO, SLACK = 1767225600, 9 * 10**15, 1000
CLOCKS = {
    "now": lambda t: t,
    "mark": lambda t: t - ZERO,
    "tick": lambda t: (t - EPOCH * 1000000) // 4,
    "vote": lambda t: (t // 1000000 - EPOCH) * 250000,
    "s": lambda t: t // 1000000,
}


class Player:
    """Plays one vector. begin and end are TIME before and after, in µs."""

    def __init__(self, client, scripts):
        self.client, self.scripts = client, scripts

    def now(self):
        s, us = self.client.time()
        return s * 1000000 + us

    def fill(self, text):
        return PLACE.sub(lambda m: str(CLOCKS[m[1]](self.begin) + int(m[2] or 0)), text)

    def bounds(self, name, n):
        took = self.end - self.begin + SLACK
        if name == "us":
            return 0, 999999
        if name == "left":
            return n - took // 1000 - 1, n + 1
        if name == "age":
            return n, n + took
        if name == "until":
            end = (self.begin // 1000000 + n + 1) * 1000
            return end - (self.end + SLACK) // 1000 - 1, end - (self.begin - SLACK) // 1000 + 1
        return CLOCKS[name](self.begin - SLACK) + n, CLOCKS[name](self.end + SLACK) + n

    def matches(self, pattern, got):
        parts = PLACE.split(pattern)
        form = r"(-?\d+)".join(re.escape(literal) for literal in parts[::3])
        found = re.fullmatch(form, got)
        if not found:
            return False
        for name, n, value in zip(parts[1::3], parts[2::3], found.groups()):
            least, most = self.bounds(name, int(n or 0))
            if not least <= int(value) <= most:
                return False
        return True

    def replied(self, want, got):
        if isinstance(want, dict):
            return isinstance(got, redis.ResponseError) and want["error"] in str(got)
        if isinstance(want, list):
            return isinstance(got, list) and len(got) == len(want) and all(map(self.replied, want, got))
        if isinstance(want, str) and isinstance(got, int):
            return bool(PLACE.search(want)) and self.matches(want, str(got))
        return want == got

    def play(self, script, v):
        """Returns what differs, or None."""
        c = self.client
        self.begin = self.now()
        c.flushdb()
        for key, value in v["before"].items():
            if "string" in value:
                c.set(key, self.fill(value["string"]))
            for member, score in value.get("zset", []):
                c.execute_command("ZADD", key, self.fill(score), member)
            if value["pttl"] > 0:
                c.pexpire(key, value["pttl"])
        try:
            reply = self.scripts[script](keys=v["keys"], args=[self.fill(a) for a in v["argv"]])
        except redis.ResponseError as e:
            reply = e
        after = {key: self.read(key) for key in c.keys("*")}
        self.end = self.now()
        if not self.replied(v["reply"], reply):
            return "the reply is %r" % (reply,)
        if sorted(after) != sorted(v["after"]):
            return "the keys are %r" % (after,)
        for key, want in v["after"].items():
            pttl, text, members = after[key]
            least, most = self.bounds("left", want["pttl"])
            zset = want.get("zset", [])
            same = least <= pttl <= most and ("string" not in want or self.matches(want["string"], text))
            same = same and [m for m, _ in zset] == [m for m, _ in members]
            if not same or not all(self.matches(s, plain(got)) for (_, s), (_, got) in zip(zset, members)):
                return "%s is %r" % (key, after[key])
        return None

    def read(self, key):
        """Returns the TTL, the text and the members of a key."""
        if self.client.type(key) == "zset":
            return self.client.pttl(key), None, self.client.zrange(key, 0, -1, withscores=True)
        return self.client.pttl(key), self.client.get(key), []


def plain(score):
    return str(int(score)) if score == int(score) else repr(score)


class Vectors(unittest.TestCase):
    def test_redis_does_what_the_vectors_say(self):
        client = redis.Redis.from_url(URL, decode_responses=True)
        paths = (HERE.parent / "scripts").glob("*.lua")
        scripts = {path.name: client.register_script(path.read_text(encoding="utf-8")) for path in paths}
        files = sorted((HERE.parent / "vectors").glob("*.json"))
        self.assertTrue(files)
        for path in files:
            these = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual(redlatch.PROTOCOL, these["protocol"])
            pubsub = client.pubsub()
            pubsub.subscribe(these["listening"])
            self.assertEqual("subscribe", pubsub.get_message(timeout=60)["type"])
            player = Player(client, scripts)
            for v in these["vectors"]:
                with self.subTest(these["script"], name=v["name"]):
                    self.assertIsNone(player.play(these["script"], v))
                    client.publish(these["listening"], "end")
                    got = []
                    while not got or got[-1] != "end":
                        message = pubsub.get_message(timeout=60)
                        got.append(message["data"])
                    want = [m[1] for m in v.get("messages", [])] + ["end"]
                    self.assertEqual(len(want), len(got))
                    self.assertTrue(all(map(player.matches, want, got)), got)
            pubsub.close()


class Client(unittest.TestCase):
    def setUp(self):
        self.redis = redis.Redis.from_url(URL, socket_timeout=4)
        self.redis.flushdb()
        self.locks = redlatch.Locker(self.redis)

    def test_who_gives_up_leaves_nothing(self):
        with self.locks("k"):
            for timeout in 0, 0.1:
                with self.assertRaises(redlatch.NotAcquired):
                    self.locks("k", timeout=timeout).__enter__()
                self.assertEqual(0, self.redis.exists("{k}:queue:k"))
        self.assertEqual(0, self.redis.exists("k"))

    def test_fences_grow(self):
        last = 0
        for _ in range(5):
            with self.locks("k") as fence:
                self.assertLess(last, fence)
                last = fence

    def test_a_lost_lock_is_reported(self):
        with self.assertRaises(redlatch.LockLost):
            with self.locks("k"):
                self.redis.delete("k")
        with self.assertRaises(redlatch.LockLost):
            lock = self.locks("k", ttl=0.3)
            with lock:
                self.redis.set("k", "somebody")
                self.eventually(lambda: lock.lost)
        self.assertEqual(b"somebody", self.redis.get("k"))

    def test_the_work_s_own_error_comes_first(self):
        with self.assertRaises(KeyError):
            with self.locks("k"):
                self.redis.delete("k")
                raise KeyError

    def test_a_token_that_nobody_uses_is_given_back(self):
        with self.locks("other"):
            with self.assertRaises(redlatch.NotAcquired):  # it subscribes
                self.locks("other", timeout=0.1).__enter__()
        token = "x/" + redlatch._uuid7()
        self.redis.set("k", token)
        entry = "2000 %s %s" % (self.locks._channel, token)
        self.redis.publish(self.locks._channel, "1 2 3 %d %sk" % (len(entry), entry))
        self.eventually(lambda: not self.redis.exists("k"))

    def test_mistakes_are_refused(self):
        for mistake in (
            lambda: redlatch.Locker(redis.Redis.from_url(URL)),
            lambda: redlatch.Locker(self.redis, owner="!x"),
            lambda: self.locks("k", ttl=0),
        ):
            self.assertRaises(ValueError, mistake)

    def eventually(self, f):
        deadline = time.monotonic() + 60
        while not f():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)


if __name__ == "__main__":
    URL = sys.argv.pop(1)
    unittest.main()
