"""Locks as the lines of its input say, each in a thread of its own, and says what happens.

lock <name> <key> <ttl>   holds it until "unlock <name>"; says "got <name> <fence>", "released <name>" or "lost <name>"
crowd <name> <key> <n>    has it n times, and counts in Redis who is inside; says "done <name>"
share <name> <key> <ttl>  has it until its process ends; says "first <name>" when it has had it, and "twice <name> <fence>" if
                          another has got it meanwhile
"""

import itertools
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


# ENTER notes a grant, and says whether it is the newest of all.
ENTER = client.register_script("""
if tonumber(ARGV[1]) <= tonumber(redis.call('GET', 'newest') or 0) then return 0 end
redis.call('SET', 'newest', ARGV[1])
redis.call('HINCRBY', 'shares', ARGV[2], 1)
return 1
""")


def share(name, key, ttl):
    for turn in itertools.count():
        try:
            with locks(key, ttl=float(ttl)) as fence:
                alone = ENTER(keys=[], args=[fence, "python"]) == 1
                alone = alone and int(client.get("newest")) == fence
            if not alone:
                say("twice", name, fence)
            if turn == 0:
                say("first", name)
        except (redlatch.LockLost, redis.TimeoutError):
            pass  # this process was frozen


for line in sys.stdin:
    command, name, *rest = line.split()
    if command == "unlock":
        ends[name].set()
    else:
        ends[name] = threading.Event()
        threading.Thread(target={"lock": hold, "crowd": crowd, "share": share}[command], args=(name, *rest), daemon=True).start()
