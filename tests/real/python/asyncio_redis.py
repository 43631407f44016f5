"""redis-py over asyncio, in its own idiom, RESP2 and RESP3. usage: asyncio_redis.py PORT"""
import asyncio
import os
import sys

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, NoScriptError, ResponseError, WatchError

PORT = int(sys.argv[1])
SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def connect(protocol, **options):
    options.setdefault("decode_responses", True)
    return redis.Redis(host="127.0.0.1", port=PORT, protocol=protocol, **options)


async def comes_true(what, tries=4000):
    for _ in range(tries):
        if await what():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it does not come true")


@scenario
async def pipelines(r, protocol):
    async with r.pipeline(transaction=False) as pipe:
        for i in range(10_000):
            pipe.set(f"p:{i}", i)
        assert all(await pipe.execute())
    async with r.pipeline(transaction=False) as pipe:
        replies = await pipe.set("s", "v").lpush("s", "x").get("s").execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], ResponseError) and replies[2] == "v"
    many = await asyncio.gather(*(r.get(f"p:{i}") for i in range(60)))
    assert many == [str(i) for i in range(60)]


@scenario
async def optimistic_transactions(r, protocol):
    await r.set("balance", 0)

    async def add():
        async with r.pipeline() as pipe:
            for _ in range(1000):
                try:
                    await pipe.watch("balance")
                    before = int(await pipe.get("balance"))
                    pipe.multi()
                    pipe.set("balance", before + 1)
                    return await pipe.execute()
                except WatchError:
                    continue
        raise AssertionError("it never succeeds")

    await asyncio.gather(*(add() for _ in range(40)))
    assert await r.get("balance") == "40"


@scenario
async def publish_and_subscribe(r, protocol):
    async with r.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe("news")
        await listener.psubscribe("n*")

        async def subscribed():
            return await r.pubsub_numpat() == 1

        await comes_true(subscribed)
        assert await r.publish("news", "hello") == 2
        heard = []
        for _ in range(100):
            message = await listener.get_message(timeout=1)
            if message:
                heard.append((message["type"], message["channel"], message["data"]))
            if len(heard) == 2:
                break
        assert heard == [("message", "news", "hello"), ("pmessage", "news", "hello")], heard


@scenario
async def streams_with_consumer_groups(r, protocol):
    await r.xgroup_create("s:x", "g", mkstream=True)
    waiting = asyncio.create_task(r.xreadgroup("g", "one", {"s:x": ">"}, block=10_000))
    first = await r.xadd("s:x", {"field": "value"})
    found = await waiting
    assert first in repr(found) and "value" in repr(found), found
    ids = [await r.xadd("s:x", {"n": i}, maxlen=1000, approximate=True) for i in range(50)]
    await r.xreadgroup("g", "two", {"s:x": ">"}, count=100)
    assert await r.xack("s:x", "g", *ids[:25]) == 25
    pending = await r.xpending("s:x", "g")
    assert pending["pending"] == 26 and {c["name"]: c["pending"] for c in pending["consumers"]} == {"one": 1, "two": 25}
    each = await r.xpending_range("s:x", "g", "-", "+", 100, consumername="two")
    assert [e["message_id"] for e in each] == ids[25:]
    _, claimed, *_ = await r.xautoclaim("s:x", "g", "three", 0, count=100)
    assert len(claimed) == 26
    info = await r.xinfo_stream("s:x", full=True)
    assert info["length"] == 51 and len(info["groups"]) == 1


@scenario
async def blocking_pops(r, protocol):
    done = []

    async def work():
        async with connect(protocol) as mine:
            for _ in range(1000):
                _, job = await mine.blpop(["jobs", "urgent"], timeout=10)
                if job == "end":
                    return
                done.append(int(job))

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for i in range(200):
        await r.rpush("urgent" if i % 3 else "jobs", i)
    # The keys are looked at in their order, so this comes last.
    await r.rpush("urgent", *["end"] * 4)
    await asyncio.gather(*workers)
    assert sorted(done) == list(range(200))
    moved = asyncio.create_task(r.blmove("from", "to", 10, "LEFT", "RIGHT"))
    await r.lpush("from", "x")
    assert await moved == "x" and await r.lrange("to", 0, -1) == ["x"]
    waiting = asyncio.create_task(r.bzpopmin("scores", timeout=10))
    await r.zadd("scores", {"a": 1.5})
    assert list(await waiting) == ["scores", "a", 1.5]


@scenario
async def iterators(r, protocol):
    await r.flushdb()
    await r.mset({f"scan:{i}": i for i in range(3000)})
    assert len({key async for key in r.scan_iter("scan:*", count=100)}) == 3000
    await r.zadd("z", {f"m{i}": i for i in range(2000)})
    assert {member: score async for member, score in r.zscan_iter("z")}["m1999"] == 1999
    await r.hset("h", mapping={f"f{i}": i for i in range(2000)})
    assert len({field async for field, _ in r.hscan_iter("h", match="f1*")}) == 1111
    await r.sadd("set", *range(2000))
    assert len({member async for member in r.sscan_iter("set")}) == 2000


@scenario
async def scripts_whose_text_the_server_has_lost(r, protocol):
    add = r.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    for i in range(1, 4):
        assert await add(keys=["n"], args=[5]) == 5 * i
        await r.script_flush()
    try:
        await r.evalsha("0" * 40, 0)
    except NoScriptError:
        pass
    else:
        raise AssertionError("there is none")
    lock = r.lock("lock", timeout=10)
    async with lock:
        assert not await r.lock("lock", timeout=10).acquire(blocking=False)
        assert await lock.extend(10)


@scenario
async def large_values_and_binary_keys(r, protocol):
    value = os.urandom(1 << 20) * 64
    async with connect(protocol, decode_responses=False) as raw:
        key = b"\x00\xff\r\n\x80"
        assert await raw.set(key, value)
        assert await raw.get(key) == value
        assert await raw.getrange(key, 1 << 20, (1 << 20) + 99) == value[1 << 20 : (1 << 20) + 100]
        assert await raw.unlink(key) == 1


@scenario
async def a_connection_that_is_killed_comes_back(r, protocol):
    options = dict(retry=Retry(ConstantBackoff(0.005), 20), retry_on_error=[ConnectionError], single_connection_client=True)
    async with connect(protocol, **options) as client:
        number = await client.client_id()
        assert await r.client_kill_filter(_id=number) == 1
        assert await client.set("after", 1)
        assert await client.client_id() != number


async def main():
    for protocol in (2, 3):
        async with connect(protocol) as r:
            await r.flushall()
            for function in SCENARIOS:
                await asyncio.wait_for(function(r, protocol), 30)
                print(f"ok   {function.__name__}, RESP{protocol}")


asyncio.run(main())
