"""Locks as the lines of its input say, each in a thread of its own, and says what happens.

lock <name> <key> <ttl>   holds it until "unlock <name>"; says "got <name> <fence>", "released <name>" or "lost <name>"
crowd <name> <key> <n>    has it n times, and counts in Redis who is inside; says "done <name>"
"""

import pathlib
import sys
import threading

import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import redlatch  # noqa: E402

client = redis.Redis.from_url(sys.argv[1], socket_timeout=4)
locks = redlatch.Locker(client, owner="python")
ends = {}


def say(*words):
    print(*words, flush=True)


def hold(name, key, ttl):
    try:
        with locks(key, ttl=float(ttl)) as fence:
            say("got", name, fence)
            ends[name].wait()
        say("released", name)
    except redlatch.LockLost:
        say("lost", name)


def crowd(name, key, n):
    for _ in range(int(n)):
        with locks(key, ttl=30) as fence:
            inside = client.incr("inside")
            client.rpush("grants", "python %d %d" % (inside, fence))
            client.decr("inside")
    say("done", name)


for line in sys.stdin:
    command, name, *rest = line.split()
    if command == "unlock":
        ends[name].set()
    else:
        ends[name] = threading.Event()
        threading.Thread(target=hold if command == "lock" else crowd, args=(name, *rest), daemon=True).start()
